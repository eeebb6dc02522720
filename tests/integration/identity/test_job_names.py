"""Names of jobs tell nothing of other tenants' jobs."""
import random
import sqlite3

import grpc
import pytest

from sparsefw.v1 import job_pb2, prune_service_pb2
from support.certificates import Authority
from support.identity import TOKENS, TlsClient, write_tokens
from support.processes import HANG, wait_until
from support.rpc import refusal

STATE = 312  # outputs of mt19937_64 from which all later ones follow
MASK = 2**64 - 1


class Mt19937x64:
    """std::mt19937_64, from a seed or from STATE outputs in a row."""

    def __init__(self, state):
        self.state = list(state)

    @classmethod
    def of_seed(cls, seed):
        state = [seed]
        for i in range(1, STATE):
            state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & MASK)
        return cls(state)

    @classmethod
    def of_outputs(cls, outputs):
        return cls(map(cls._untempered, outputs))

    def next(self):
        old = self.state
        joined = (old[0] & 0xFFFFFFFF80000000) | (old[1] & 0x7FFFFFFF)
        new = old[156] ^ (joined >> 1) ^ (0xB5026F5AA96619E9 if joined & 1 else 0)
        self.state = [*old[1:], new]
        return self._tempered(new)

    @staticmethod
    def _tempered(x):
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)

    @staticmethod
    def _untempered(y):
        def back(shifted):
            """The x of y = x ^ shifted(x): every round makes as many bits right as are shifted, 17 at least."""
            x = y
            for _ in range(64 // 17 + 1):
                x = y ^ shifted(x)
            return x

        for shifted in (lambda x: x >> 43, lambda x: (x << 37) & 0xFFF7EEE000000000,
                        lambda x: (x << 17) & 0x71D67FFFEDA60000, lambda x: (x >> 29) & 0x5555555555555555):
            y = back(shifted)
        return y


def foretold(numbers):
    """How many of the numbers after the first STATE follow from these."""
    engine = Mt19937x64.of_outputs(numbers[:STATE])
    return sum(engine.next() == number for number in numbers[STATE:])


class World:
    def __init__(self, server, authority, layer):
        self.server = server
        self.alice, self.bob = (TlsClient(server.address, authority, token=TOKENS[who]) for who in ("alice", "bob"))
        self.inputs = (self.alice.upload(layer.weight, "weight"), self.alice.upload(layer.gram, "gram"))

    def create(self):
        spec = job_pb2.JobSpec(weight=self.inputs[0], gram=self.inputs[1], method=job_pb2.METHOD_MAGNITUDE)
        spec.pattern.per_row.sparsity = 0.5
        return self.alice.jobs.CreateJob(prune_service_pb2.CreateJobRequest(spec=spec), timeout=HANG).name

    def incidents(self):
        return [line for line in self.server.log().splitlines() if "store_incident" in line]


@pytest.fixture
def world(start_server, folder, layer):
    authority = Authority(folder)
    pair = authority.server()
    one = World(start_server("--tls-cert", pair.certificate, "--tls-key", pair.key,
                             "--tokens", write_tokens(folder / "tokens", **TOKENS)), authority, layer)
    yield one
    one.alice.close()
    one.bob.close()


def get(client, name):
    return client.jobs.GetJob(prune_service_pb2.GetJobRequest(name=name), timeout=HANG)


def test_the_generator_of_these_tests_is_mt19937_64():
    engine = Mt19937x64.of_seed(5489)
    for _ in range(9999):
        engine.next()
    assert engine.next() == 9981545732273789042, "the 10,000th number, by the C++ standard"


def test_a_name_is_not_foretold_from_those_before(world):
    seed = random.getrandbits(64)
    print(f"seed {seed}")
    engine = Mt19937x64.of_seed(seed)
    assert foretold([engine.next() for _ in range(320)]) == 8, "names of mt19937_64 are"
    numbers = [int(world.create().removeprefix("jobs/"), 16) for _ in range(320)]
    assert len(set(numbers)) == 320
    assert foretold(numbers) == 0


def test_a_record_of_another_tenant_is_not_read(world):
    """A damaged record is found when it is read, and the log names it then."""
    job = world.create()
    wait_until(lambda: get(world.alice, job).state == job_pb2.JOB_STATE_SUCCEEDED, "the job ends")
    database = sqlite3.connect(world.server.state_dir / "sparsefw.db", timeout=HANG)
    with database:
        database.execute("UPDATE jobs SET record = x'ff00ff' WHERE name = ?", (job,))
    database.close()
    missing = "jobs/" + "0" * len(job.removeprefix("jobs/"))
    for name in (missing, job):
        assert refusal(lambda name=name: get(world.bob, name)) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")
    assert not world.incidents(), "bob's call has read it"
    assert refusal(lambda: get(world.alice, job)) == (grpc.StatusCode.DATA_LOSS, "JOB_DAMAGED")
    assert len(world.incidents()) == 1 and job in world.incidents()[0]
