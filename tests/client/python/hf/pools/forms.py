"""The tests with raylets have a short form, for every run of the tests, and a long one."""

import os

import pytest

long = pytest.mark.skipif(os.environ.get("SPARSEFW_RAY_LONG") != "1", reason="of the long form: script/python --ray")
