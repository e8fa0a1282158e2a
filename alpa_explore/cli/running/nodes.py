"""`alpa-explore nodes ADDRESS`: the hosts of a Dask scheduler, and the links between them."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING

from alpa_explore.cli.options import HOSTS
from alpa_explore.cli.output import check_file, complain, print_json
from alpa_explore.cli.progress_line import ProgressLine
from alpa_explore.plans.report.text import render_table
from alpa_explore.units import printable

if TYPE_CHECKING:
    from alpa_explore.attached.attach import Attached

COMMAND = f"""nodes  list the hosts that are attached by Dask
    List the hosts of a Dask scheduler with their devices, memory and versions, and measure the links between them.
address ADDRESS  tcp://HOST:PORT of a scheduler, ssh:h1,h2, slurm, or a file
{HOSTS}
--no-links  measure no links
--calibrate  measure the devices on one worker (one to three minutes) and keep the figures for machines of its kind
--quick  with --calibrate: fewer shapes of kernels
--keep  with ssh: or slurm: keep the workers until Ctrl-C
-o --output FILE  write the cluster (JSON), for --cluster FILE
--json  print JSON"""
EPILOG = """ADDRESS is that of a Dask scheduler (tcp://host:8786); ssh:h1,h2 starts workers on these hosts for the
time of the command, slurm on the nodes of this allocation; a file that -o wrote is shown again.

Links are measured by TCP from worker to worker, each direction by itself. Devices and versions must be equal on all
hosts to plan for them; --hosts names those that count.

example:
  alpa-explore nodes tcp://10.0.0.1:8786 -o mine.json
  alpa-explore plan gpt-tiny --cluster mine.json -B 4 -o a.plan.json
  alpa-explore launch a.plan.json --target dask --scheduler tcp://10.0.0.1:8786

exit codes: 0 done, 2 bad input, hosts that cannot be planned for"""


def run(options: argparse.Namespace) -> int:
    """Attach, print both tables, write the file."""
    from alpa_explore.attached.attach import attached_document, load_attached, save_attached
    from alpa_explore.attached.connection import SLURM, SSH, scheduler_of
    from alpa_explore.cluster.files import is_file_name
    from alpa_explore.errors import OptionError

    check_file(options.output, "The cluster file", is_json=True)
    if options.keep and not (options.address.startswith(SSH) or options.address == SLURM):
        raise OptionError(
            "--keep is for workers that this command starts",
            found=f"--keep with {options.address}",
            remedy="Leave it out: that scheduler goes on by itself.",
        )
    if is_file_name(options.address):
        attached = load_attached(options.address)
        if options.json:
            print_json(attached_document(attached))
        else:
            print(f"measured at {printable(attached.measured_at)}")
            _print_hosts(attached)
            _print_links(attached)
        return 0
    with scheduler_of(options.address) as address:
        attached = _attach(options, address)
        if options.calibrate:
            _calibrate(options, attached)
        if options.json:
            print_json(attached_document(attached))
        else:
            _print_links(attached)
        for remark in attached.remarks(options.devices_per_node):
            complain(remark)
        cluster = attached.cluster(options.devices_per_node)
        if options.output is not None:
            save_attached(attached, options.output, devices_per_node=options.devices_per_node)
            complain(f"wrote {printable(options.output)}: {cluster}; use it as --cluster {printable(options.output)}")
        elif not options.json:
            print(f"\nas a cluster: {cluster}")
        if options.keep:
            complain(f"the scheduler is {address}; Ctrl-C ends it and its workers")
            threading.Event().wait()
    return 0


def _attach(options: argparse.Namespace, address: str) -> Attached:
    from alpa_explore.attached.attach import attach

    with ProgressLine(sys.stderr) as line:
        return attach(
            address,
            hosts=options.hosts.split(",") if options.hosts else (),
            links=not options.no_links,
            allow_remote=options.allow_remote or address != options.address,  # what was started here is trusted
            found=(lambda _found: None) if options.json else _print_hosts,
            progress=line,
        )


def _calibrate(options: argparse.Namespace, attached: Attached) -> None:
    from alpa_explore.attached.cluster_of import calibrate

    cluster, host = attached.cluster(options.devices_per_node), attached.hosts[0]
    complain(f"calibrating {cluster.devices_per_node} devices of {host.name} (one to three minutes)")
    path = calibrate(attached.scheduler, host, cluster.devices_per_node, shapes=not options.quick, allow_remote=True)
    complain(f"kept {printable(str(path))}")


def _print_hosts(attached: Attached) -> None:
    from alpa_explore.attached.hosts import differences, differences_from_here, host_rows

    print(render_table(host_rows(attached.hosts)), flush=True)
    for text in differences(attached.hosts):
        complain(f"hosts differ. {text}")
    for text in differences_from_here(attached.hosts, attached.here):
        complain(f"hosts differ from this process. {text}")


def _print_links(attached: Attached) -> None:
    from alpa_explore.attached.hosts import link_rows

    if attached.links:
        print(f"\n{render_table(link_rows(attached.links))}")
