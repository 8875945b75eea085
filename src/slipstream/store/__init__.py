"""Large values in files: written once by the process that made them, mapped by all that read them.

- `payload`: what stands for such a value in messages.
- `writing`: a value into a file, in the place where a process writes (`place`): shared memory, and disk when that is
  full.
- `reading`: the value of a payload, mapped or read.
- `directory`: the directories of one client, made and removed by it; those of dead clients are swept.
- `owned`: which files the client still needs; a file goes with the last payload that stands for it.
- `sent`: whether a large argument equals one that lies in a file already.

A file is written by `write()`, announced, and never changed after that: to shorten a file that is mapped kills whoever
reads it (SIGBUS), and so does the first touch of a sparse file in a file system that is full, where `write()` raises.

Workers import `payload`, `place`, `writing` and `reading`, which import next to nothing at the top.

Never here: messages, tasks, and the decision which values are large.
"""
