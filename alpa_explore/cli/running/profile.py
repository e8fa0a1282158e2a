"""`alpa-explore profile PLAN -o FILE`: time the kernels of a plan on the attached device."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from alpa_explore import units
from alpa_explore.cli.options import PLAN_FILE
from alpa_explore.cli.output import check_file, complain, print_json
from alpa_explore.plans.report.tables import row_of
from alpa_explore.units import printable

COMMAND = f"""profile  time the kernels of a plan on the attached device
    Time the kernels that a plan and its search ask for on the attached device, and write them to a file. A cluster
    NxM:DEVICE+FILE is planned with these times.
{PLAN_FILE}
-o --output FILE (required)  the file of kernels (JSON)
--seconds S (float, = 30)  about how long to measure (default: 30)
--scheduler ADDRESS  measure on the hosts of a Dask scheduler (tcp://HOST:PORT), which share the list of kernels
--allow-remote  allow a scheduler outside this machine and private networks
--device (cpu|cuda)  what to measure (default: cuda if available)
--allow-import  allow a recipe package.module:function in the plan file, which runs that code
--json  print JSON"""
EPILOG = """example:
  alpa-explore plan gpt-tiny --cluster 1x2:cpu -B 4 -o a.plan.json
  alpa-explore profile a.plan.json -o kernels.json --seconds 20
  alpa-explore plan gpt-tiny --cluster 1x2:cpu+kernels.json -B 4

The kernels of the plan are timed first, by their share of its time. Then a plan is made with what was found, and its
kernels are timed, until they are known; then those of all other strategies. Where FILE is there already, its kernels
are kept, and only others are timed: a profile that was interrupted goes on."""


def run(options: argparse.Namespace) -> int:
    """Measure, write, and say what is known now."""
    from alpa_explore.attached.profile import profile
    from alpa_explore.cluster.kernel_store import read_kernel_store
    from alpa_explore.errors import OptionError
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.plans.rebuild import rebuild
    from alpa_explore.store.write import write_text

    check_file(options.output, "The file of kernels", is_json=True)
    if not options.seconds > 0:
        raise OptionError(
            "The seconds of a profile must be positive", found=f"{options.seconds} s", remedy="Give 30 or so."
        )
    plan = rebuild(load_plan(options.file), allow_import=options.allow_import)
    known = read_kernel_store(options.output) if Path(options.output).exists() else None
    told = time.monotonic()

    def progress(done: int, of: int, share: float) -> None:
        nonlocal told
        if time.monotonic() > told + 1:
            told = time.monotonic()
            print(f"{done:,} of {of:,} kernels, {units.percent(share)} of the plan's time", file=sys.stderr, flush=True)

    made = profile(
        plan,
        seconds=options.seconds,
        scheduler=options.scheduler,
        kind=options.device,
        store=known,
        progress=progress,
        allow_remote=options.allow_remote,
    )
    write_text(options.output, json.dumps(made.store.as_json(), ensure_ascii=False) + "\n", "The file of kernels")
    name = printable(options.output)
    shape = f"{plan.cluster.nodes}x{plan.cluster.devices_per_node}"
    complain(f"wrote {name}; use it as --cluster {shape}:{printable(plan.cluster.device_name)}+{name}")
    if known is not None and known.software != made.store.software:
        complain(f"it also has kernels of {printable(known.software)}: name another file to time all of them anew")
    if options.json:
        print_json(
            {
                **row_of(made, "device=store.device timed known left plan_share"),
                "failed": [list(pair) for pair in made.failed],
                "untimed": [list(pair) for pair in made.untimed],
                "unsteady": list(made.unsteady),
            }
        )
        return 0
    print(
        f"{printable(made.store.device)}: {made.timed:,} kernels timed, {made.known:,} known before, {made.left:,} left"
    )
    print(f"{units.percent(made.plan_share)} of the plan's kernel time is measured now")
    if made.unsteady:
        print(f"{len(made.unsteady):,} kernels vary by more than 20 %: another program may use the device; run again")
    for kernel, why in made.failed:
        print(f"does not run, so that strategies with it have no price: {printable(kernel)}: {printable(why)}")
    for kernel, why in made.untimed:
        print(f"not timed: {printable(kernel)}: {printable(why)}")
    return 0
