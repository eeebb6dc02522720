"""Kills the real server under load and checks what clients were promised. See script/chaos."""
import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import paths  # noqa: F401
import variants as variants_module
from clients import CliWorker, HistoryWorker, Violation
from faulty_proxy import FaultyProxy
from killed_server import KilledServer
from support.processes import HANG
from support.rpc import Client
from validate import check


def parse():
    parser = argparse.ArgumentParser(prog="script/chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kill-every", type=float, nargs=2, default=(1.0, 9.0),
                        metavar=("LEAST", "MOST"), help="seconds between two ends of the server")
    parser.add_argument("--clients", type=int, default=6, help="half of them are sparsefw-cli")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--least-kills", type=int, default=0)
    parser.add_argument("--least-jobs", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a small layer only: many short jobs")
    parser.add_argument("--keep", action="store_true", help="leave the folder for inspection")
    return parser.parse_args()


def status(begin, server, workers, proxy):
    jobs, retries = sum(one.jobs for one in workers), sum(one.retries for one in workers)
    print(f"{time.monotonic() - begin:5.0f} s: {server.kills} kills, {server.drains} drains, "
          f"{jobs} jobs, {retries} retries, connections {proxy.fates}", flush=True)


def done(begin, options, server, workers):
    """A slow machine gets the time that it takes for what has to happen at least."""
    seconds = time.monotonic() - begin
    enough = server.kills >= options.least_kills and \
        sum(worker.jobs for worker in workers) >= options.least_jobs
    return seconds >= (options.seconds if enough else max(options.seconds, 2 * HANG))


def run(options, folder):
    begin = time.monotonic()
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"seed {seed}, folder {folder}", flush=True)
    (folder / "layers").mkdir()
    variants = (variants_module.make_small if options.small
                else variants_module.make)(folder / "layers")
    server = KilledServer(folder, seed)
    proxy = FaultyProxy(server.address, seed + 1)
    workers = [CliWorker(proxy.address, variants, seed + 10 + number, folder / f"cli{number}")
               if number % 2 else HistoryWorker(proxy.address, variants, seed + 10 + number)
               for number in range(options.clients)]
    try:
        for worker in workers:
            worker.start()
        server.harass(*options.kill_every)
        while not done(begin, options, server, workers) and not server.error \
                and not any(w.error for w in workers):
            left = begin + options.seconds - time.monotonic()
            time.sleep(min(10, left) if left > 0 else 1)
            status(begin, server, workers, proxy)
        finish(server, proxy, workers)
        checked = settle(server, workers)
        result = {"seconds": round(time.monotonic() - begin, 1), "seed": seed,
                  "kills": server.kills, "drains": server.drains,
                  "jobs": sum(worker.jobs for worker in workers), "jobs_checked": checked,
                  "retries": sum(worker.retries for worker in workers),
                  "longest_start_s": round(server.longest_start, 3), "connections": proxy.fates}
        print(json.dumps(result))
        short = [f"{name} {result[name]} of {least}" for name, least in
                 (("kills", options.least_kills), ("jobs", options.least_jobs))
                 if result[name] < least]
        if short:
            raise Violation("too little happened: " + ", ".join(short))
    finally:
        for worker in workers:
            worker.stopping.set()
        server.close()
        proxy.close()


def finish(server, proxy, workers):
    """Lets every client end what it has begun, on a server that is left alone."""
    for worker in workers:
        worker.stopping.set()
    server.calm()
    proxy.be_calm()
    for worker in workers:
        worker.join(timeout=2 * HANG)
    for worker in workers:
        if worker.error:
            raise worker.error
        if worker.is_alive():
            raise Violation(f"a client did not end within {2 * HANG:g} s on a server that was left alone")


def settle(server, workers):
    """Checks now, and again after a last kill."""
    for _ in range(2):
        client = Client(server.address)
        try:
            checked = check(client, workers, server.folder / "state/spool")
        finally:
            client.close()
        server.server.close()
        server.start()
    return checked


def main():
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="sparsefw-chaos-"))
    try:
        run(options, folder)
    except (Violation, AssertionError) as error:
        print(f"script/chaos: {error}", file=sys.stderr)
        log = folder / "server.log"
        if log.exists():
            print("last lines of the server:\n" + "\n".join(
                log.read_text(errors="replace").splitlines()[-15:]), file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
