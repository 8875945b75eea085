"""How callables, values and exceptions cross between processes.

- `values`: what the rest of the engine calls, for calls and values; `tasks` for calls that clients submit.
- `exceptions`: the same for what a task raised; `exception_body` for one exception without its links;
  `plain_exceptions` where a worker cannot even import those.
- `pickler`: what goes by reference and what by value, with `classes` and `reducers`.
- `borrowed`: all that is used of cloudpickle.
- `imports`: what another process can import.
- `blame`: the culprit, after a failure only; `error_text`: what it said.
- `captures`: what a function by value captures, with `constants` and `guards`; `definitions` and `holes`: how it is
  sent once, and its state each time.
- `explain`: what `doctor` finds out.
- `callables`: what a callable is called, and by what it is recognised.

`values`, `exceptions` and `callables` import next to nothing, since every worker imports them at its start. What costs
more, cloudpickle above all, is imported when it is needed first.

Never here: sockets, frames, scheduling, or anything that wraps the user's function.
"""
