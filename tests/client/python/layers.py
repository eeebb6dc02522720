"""Made-up layers, and what they are compared with."""

import numpy as np

from sparsefw import Options, Retry
from support import reference
from support.processes import wait_until

# So many iterations that a job ends only when it is told to.
ENDLESS = {"method": "sparsefw", "iterations": 10**12, "report_every": 200}


class Layer:
    def __init__(self, d_out=24, d_in=32, tokens=200, seed=7):
        print(f"layer seed {seed}")
        random = np.random.default_rng(seed)
        self.weight = random.standard_normal((d_out, d_in)).astype(np.float32)
        mixing = random.standard_normal((d_in, d_in)) / np.sqrt(d_in) + np.eye(d_in)
        self.activations = (random.standard_normal((tokens, d_in)) @ mixing).astype(np.float32)
        inputs = self.activations.astype(np.float64)
        self.gram = (inputs.T @ inputs).astype(np.float32)

    def loss(self, mask):
        return reference.loss(self.weight, self.gram, mask)


class Retries:
    """Options that retry fast and remember every retry."""

    def __init__(self, **options):
        self.errors = []
        self.options = Options(
            retry=Retry(initial_backoff=0.02, max_backoff=0.1, give_up_after=30),
            on_retry=lambda error, _: self.errors.append(error),
            **options,
        )


def running(job, iterations=0):
    def far_enough():
        message = job.refresh().message
        return job.state == "RUNNING" and message.progress.iteration >= iterations
    wait_until(far_enough, "the job runs")
