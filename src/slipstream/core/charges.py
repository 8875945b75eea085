"""Which tasks a lost worker is charged to.

Known is, from the shared page, which attempt ran at that moment. Where none ran, or a task has done something to the
worker's connection, any task that started there and was not reported may have been the cause: those are suspects. A
suspect is dispatched again and runs alone from then on (placement), so the next suspicion is a proof: it ends the
worker after it has returned, and would do so again on the next worker, and the next.

Never here: what becomes of the tasks.
"""

from slipstream.core.events import WorkerEnd
from slipstream.core.tasks import Worker
from slipstream.protocol.ids import TaskId

#: A task is suspected so often before it is charged.
MAX_SUSPICIONS = 1


def charged_tasks(worker: Worker, end: WorkerEnd) -> set[TaskId]:
    """The tasks that are charged with this end. Takes note of the suspects among the others."""
    suspects = _suspects(worker, end)
    if not suspects:
        return {
            task.task for task in worker.tasks.values() if not end.by_task and (task.task, task.attempt) == end.running
        }
    charged: set[TaskId] = set()
    for identity in suspects:
        task = worker.tasks[identity]
        task.suspicions += 1
        if task.suspicions > MAX_SUSPICIONS or (end.by_task and len(suspects) == 1):
            charged.add(identity)
    return charged


def _suspects(worker: Worker, end: WorkerEnd) -> list[TaskId]:
    """Tasks that started on a lost worker and were not reported, where it is not known which of them was the cause."""
    if end.last is None or (end.running is not None and not end.by_task):
        return []
    task, attempt = end.last
    last = worker.tasks.get(task)
    if last is None or last.attempt != attempt:  # it was reported, and so was everything before
        return []
    sent = list(worker.tasks)
    return sent[: sent.index(task) + 1]
