"""What `doctor` finds out: what a call would cost to send, and what a pickle file would do.

- `call`: the analysis of a call, in a `report`, by means of `captured`, `culprits`, `reasons`, `import_times`,
  `other_way` and `advice`.
- `pickle_file`: a pickle that nobody may load, by its opcodes, on a `pickle_stack`.
- `printable`: foreign text, made safe to show.

Never here: anything that runs when tasks are sent; tables and options.
"""
