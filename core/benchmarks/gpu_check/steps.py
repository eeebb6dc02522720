"""Steps of a check: each has a name, a time limit, an outcome and what it found."""
import time
import traceback

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class StepFailed(Exception):
    """With what was found so far."""

    def __init__(self, message, **facts):
        super().__init__(message)
        self.facts = facts


class StepSkipped(Exception):
    pass


class Steps:
    """Runs steps one after the other; all of them share a time limit."""

    def __init__(self, total_seconds, say):
        self._end = time.monotonic() + total_seconds
        self._say = say
        self.done = []

    def left(self):
        return max(0.0, self._end - time.monotonic())

    def run(self, name, limit, work):
        """work(seconds) -> (one line for people, facts for the JSON). Returns whether it passed
        or was skipped as the user asked."""
        limit = min(limit, self.left())
        step = {"name": name, "outcome": PASSED, "limit_seconds": round(limit, 1)}
        self._say(f"{name} ...")
        begin = time.monotonic()
        try:
            if limit < 1:
                raise StepFailed("no time was left for it")
            step["detail"], facts = work(limit)
            step.update(facts)
        except StepSkipped as reason:
            step.update(outcome=SKIPPED, detail=str(reason))
        except StepFailed as failure:
            step.update(failure.facts, outcome=FAILED, detail=str(failure))
        except Exception as error:  # a bug here must not hide what other steps find
            step.update(outcome=FAILED, detail=f"{type(error).__name__}: {error}",
                        trace=traceback.format_exc())
        step["seconds"] = round(time.monotonic() - begin, 1)
        self.done.append(step)
        self._say(f"{name}: {step['outcome']} after {step['seconds']} s: {step['detail']}")
        return step["outcome"] != FAILED

    def passed(self):
        return all(step["outcome"] != FAILED for step in self.done)
