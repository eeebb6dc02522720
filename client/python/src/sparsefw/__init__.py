"""Sparse masks for the linear layers of large language models, from a SparseFW pruning server.

    import sparsefw

    client = sparsefw.connect("127.0.0.1:50051")      # or "auto": a server of one's own
    w = client.upload(weight)                         # NumPy or torch, [d_out, d_in]
    g = client.gram(batches)                          # arrays [tokens, d_in], summed on the server
    result = client.prune(w, g, sparsity=0.6, progress=True)
    result.mask                                       # bool [d_out, d_in], True = keep
    result.losses                                     # with a certificate: losses.lower_bound

`sparsefw.aio` is the same to be awaited.
"""

from sparsefw._losses import Losses, Unshrunk
from sparsefw.client import Client, connect
from sparsefw.embedded import EmbeddedServer, serve
from sparsefw.errors import (
    Aborted,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from sparsefw.handles import Job, Tensor
from sparsefw.options import Options, Retry
from sparsefw.results import (
    Event,
    Joint,
    Progress,
    Result,
    Screening,
    Timings,
)
from sparsefw.spec import JobOptions
from sparsefw.sweep_results import SweepPoint, SweepResult

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "Cancelled",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "EmbeddedServer",
    "Error",
    "Event",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "Job",
    "JobOptions",
    "Joint",
    "Losses",
    "NotFound",
    "Options",
    "OutOfRange",
    "PermissionDenied",
    "Progress",
    "ResourceExhausted",
    "Result",
    "Retry",
    "Screening",
    "SweepPoint",
    "SweepResult",
    "Tensor",
    "Timings",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unshrunk",
    "connect",
    "serve",
]
