#!/usr/bin/env python3
"""Makes sparsefw.json, the Grafana dashboard, from the panels below:

    deploy/grafana/dashboard.py > deploy/grafana/sparsefw.json

tests/deploy compares the two, and asks every expression of a live server's Prometheus.
"""
import json
import sys


def of(metric, *more):
    """The metric of the chosen servers."""
    return metric + "{" + ", ".join(['server=~"$server"', *more]) + "}"


def rate(metric, by, *more):
    return f"sum by ({by}) (rate({of(metric, *more)}[$__rate_interval]))"


def quantile(q, metric, by=""):
    labels = "le" + (f", {by}" if by else "")
    return f"histogram_quantile({q}, {rate(metric + '_bucket', labels)})"


def mean(metric, by):
    return f"{rate(metric + '_sum', by)} / {rate(metric + '_count', by)}"


# Row -> panels: title, unit of Grafana, what it says, [(expression, legend), ...] and, where it is no
# plot over time, its type.
ROWS = {
    "Jobs and queue": [
        ("Takes work", "bool_yes_no",
         "A new gRPC connection was answered with SERVING. Drains say no, too.",
         [(of("probe_success", 'job="sparsefw-grpc"'), "{{server}}")], "stat"),
        ("Jobs now", "short", "Waiting and running.",
         [(of("sparsefw_jobs", 'state=~"queued|running"'), "{{server}} {{state}}")]),
        ("Jobs accepted", "ops", "By method.",
         [(rate("sparsefw_jobs_submitted_total", "method"), "{{method}}")]),
        ("Jobs ended", "ops", "By state and reason: why a solve stopped, or why it failed.",
         [(rate("sparsefw_jobs_finished_total", "state, reason"), "{{state}} {{reason}}")]),
        ("Time in the queue", "s", "From acceptance to start.",
         [(quantile(0.5, "sparsefw_job_queue_seconds"), "median"),
          (quantile(0.95, "sparsefw_job_queue_seconds"), "95 %")]),
        ("Time of solving, 95 %", "s", "Jobs with a result.",
         [(quantile(0.95, "sparsefw_job_solve_seconds", "method"), "{{method}}")]),
    ],
    "Quality of the masks": [
        ("Reduction, mean", "percentunit", "1 - final loss / loss of the warm start.",
         [(mean("sparsefw_job_reduction_ratio", "method"), "{{method}}")]),
        ("Gap of the certificate, mean", "percentunit",
         "1 - certified lower bound / final loss: how much at most a mask with the same fixed "
         "weights could gain.",
         [(mean("sparsefw_job_gap_ratio", "method"), "{{method}}")]),
        ("Reductions", "percentunit", "How many jobs had which.",
         [(rate("sparsefw_job_reduction_ratio_bucket", "le"), "{{le}}")], "heatmap"),
        ("Iterations, mean", "short", "Frank-Wolfe iterations of a job.",
         [(mean("sparsefw_job_iterations", "method"), "{{method}}")]),
        ("Weights that screened iterations look at, mean", "percentunit",
         "Late iterations look only at columns that can still change.",
         [(mean("sparsefw_job_active_ratio", "method"), "{{method}}")]),
    ],
    "Tensors, memory and disk": [
        ("Room for tensors", "bytes", "Reserved, of --host-memory.",
         [(of("sparsefw_memory_used_bytes"), "{{server}} used"),
          (of("sparsefw_memory_budget_bytes"), "{{server}} budget")]),
        ("Disk", "bytes", "Files of tensors and uploads; a budget of 0 is what the disk has.",
         [(of("sparsefw_disk_used_bytes"), "{{server}} used"),
          (of("sparsefw_disk_budget_bytes"), "{{server}} budget")]),
        ("Working memory of solves", "bytes", "Reserved by running jobs, of --solve-memory.",
         [(of("sparsefw_solve_memory_used_bytes"), "{{server}} used"),
          (of("sparsefw_solve_memory_budget_bytes"), "{{server}} budget")]),
        ("Chunks on their way to disk", "bytes", "Streams wait where --staging-memory is full.",
         [(of("sparsefw_staging_used_bytes"), "{{server}} used"),
          (of("sparsefw_staging_budget_bytes"), "{{server}} budget")]),
        ("Tensors and uploads", "short",
         "Stored; begun; results that accepted jobs will store; most of the three; not checked since the start.",
         [(of("sparsefw_tensors"), "{{server}} tensors"), (of("sparsefw_uploads"), "{{server}} uploads"),
          (of("sparsefw_tensors_reserved"), "{{server}} reserved"), (of("sparsefw_tensors_limit"), "{{server}} limit"),
          (of("sparsefw_tensors_unchecked"), "{{server}} unchecked")]),
        ("Records of kept jobs", "bytes", "What they count for, of --max-job-bytes; the database's file.",
         [(of("sparsefw_job_used_bytes"), "{{server}} used"),
          (of("sparsefw_job_budget_bytes"), "{{server}} budget"),
          (of("sparsefw_database_bytes"), "{{server}} file")]),
        ("Tensor data", "Bps", "Received and sent.",
         [(rate("sparsefw_rpc_received_bytes_total", "server"), "{{server}} received"),
          (rate("sparsefw_rpc_sent_bytes_total", "server"), "{{server}} sent")]),
    ],
    "Calls": [
        ("Calls begun", "reqps", "By method.",
         [(rate("sparsefw_rpc_started_total", "method") + " > 0", "{{method}}")]),
        ("Duration, 99 %", "s", "Calls that ended; watches last as long as their jobs.",
         [(quantile(0.99, "sparsefw_rpc_duration_seconds", "method"), "{{method}}")]),
        ("Calls ended, but OK", "reqps", "By code.",
         [(rate("sparsefw_rpc_duration_seconds_count", "code", 'code!="OK"'), "{{code}}")]),
        ("Refusals", "reqps", "By reason (docs/errors.md).",
         [(rate("sparsefw_rpc_refused_total", "reason"), "{{reason}}")]),
        ("Open calls", "short", "",
         [(f"sum by (server) ({of('sparsefw_rpc_in_flight')})", "{{server}} calls"),
          (of("sparsefw_watchers"), "{{server}} watches")]),
        ("Calls that wait for a thread", "short", "By kind of work; tenants are served in turn.",
         [(of("sparsefw_executor_queue_length"), "{{server}} {{executor}}")]),
        ("Longest wait for a thread", "s", "The oldest work that waits now.",
         [(of("sparsefw_executor_oldest_wait_seconds"), "{{server}} {{executor}}")]),
        ("File descriptors", "percentunit", "Open, of the limit.",
         [(f"{of('sparsefw_open_descriptors')} / {of('sparsefw_max_descriptors')}", "{{server}} open")]),
        ("Connections refused and closed", "ops",
         "Refused: no descriptors, or too many connections. Closed: too many unfinished bytes.",
         [(rate("sparsefw_connections_refused_total", "server"), "{{server}} refused"),
          (rate("sparsefw_connections_closed_total", "server"), "{{server}} closed")]),
        ("Memory of connections", "bytes",
         "Received of messages that are not whole; messages and responses of calls. Of --connection-memory.",
         [(of("sparsefw_unfinished_bytes"), "{{server}} unfinished"),
          (of("sparsefw_held_bytes"), "{{server}} held")]),
    ],
    "GPUs": [
        ("Memory for jobs", "bytes", "Reserved by running jobs, of --device-memory.",
         [(of("sparsefw_device_memory_used_bytes"), "{{server}} {{device}} used"),
          (of("sparsefw_device_memory_budget_bytes"), "{{server}} {{device}} budget")]),
        ("Memory of the card", "bytes", "In use by whomever.",
         [(of("sparsefw_gpu_memory_used_bytes"), "{{server}} {{device}} used"),
          (of("sparsefw_gpu_memory_capacity_bytes"), "{{server}} {{device}} capacity")]),
        ("Utilisation", "percentunit", "Share of the time in which a kernel ran.",
         [(of("sparsefw_gpu_utilization_ratio"), "{{server}} {{device}}")]),
        ("Jobs", "short", "Running there, and streams.",
         [(of("sparsefw_device_jobs"), "{{server}} {{device}} jobs"),
          (of("sparsefw_device_streams"), "{{server}} {{device}} streams")]),
        ("Gram matrices", "ops", "Uploaded for jobs; found there by jobs.",
         [(rate("sparsefw_device_gram_uploads_total", "server, device"), "{{server}} {{device}} uploaded"),
          (rate("sparsefw_device_gram_reuses_total", "server, device"), "{{server}} {{device}} found")]),
        ("Temperature", "celsius", "", [(of("sparsefw_gpu_temperature_celsius"), "{{server}} {{device}}")]),
        ("Power", "watt", "", [(of("sparsefw_gpu_power_watts"), "{{server}} {{device}}")]),
        ("Lost", "short", "1 until the server restarts.",
         [(of("sparsefw_device_lost"), "{{server}} {{device}}")]),
    ],
    # Metrics never name a tenant: the log does.
    "Tenants": [
        ("Tenants with jobs", "short", "Waiting and running.",
         [(of("sparsefw_tenants"), "{{server}} {{state}}")]),
        ("Beyond a quota", "reqps", "Calls refused, by limit.",
         [(rate("sparsefw_rpc_refused_total", "reason",
                'reason=~"QUOTA_.*|PRIORITY_NOT_ALLOWED|QUEUE_FULL"'), "{{reason}}")]),
        ("Credentials refused", "reqps", "Missing, wrong, expired, or of another tenant.",
         [(rate("sparsefw_rpc_refused_total", "reason", 'reason=~"CREDENTIALS_.*|TENANT_.*"'),
           "{{reason}}")]),
    ],
}
COLUMNS, WIDTH, HEIGHT = 3, 8, 8


def options_of(kind, unit):
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "background", "graphMode": "none"}
    if kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": unit}, "cellGap": 1}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}


def panel(number, x, y, title, unit, description, targets, kind="timeseries"):
    defaults = {"unit": unit, "min": 0, "custom": {}}
    if kind == "stat":
        defaults["thresholds"] = {"mode": "absolute", "steps": [{"color": "red", "value": None},
                                                                {"color": "green", "value": 1}]}
    return {
        "id": number, "type": kind, "title": title, "description": description,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options_of(kind, unit),
        "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend,
                     "format": "heatmap" if kind == "heatmap" else "time_series",
                     "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                    for i, (expression, legend) in enumerate(targets)],
    }


def panels():
    number, y = 1, 0
    for row, content in ROWS.items():
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}}
        number, y = number + 1, y + 1
        for i, one in enumerate(content):
            yield panel(number, i % COLUMNS * WIDTH, y + i // COLUMNS * HEIGHT, *one)
            number += 1
        y += -(-len(content) // COLUMNS) * HEIGHT


def dashboard():
    return {
        "uid": "sparsefw", "title": "SparseFW", "tags": ["sparsefw"], "schemaVersion": 39,
        "editable": False, "refresh": "15s", "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser", "annotations": {"list": []}, "links": [],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {"name": "server", "label": "Server", "type": "query", "refresh": 2, "multi": True,
             "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"},
             "datasource": {"type": "prometheus", "uid": "${datasource}"},
             "definition": "label_values(sparsefw_build_info, server)",
             "query": {"query": "label_values(sparsefw_build_info, server)", "refId": "A"}},
        ]},
        "panels": list(panels()),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    print()
