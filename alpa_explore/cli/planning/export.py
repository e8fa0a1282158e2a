"""`alpa-explore export PLAN --to TARGET`: a plan in the form of another tool; what that lacks goes to stderr."""

import argparse

from alpa_explore.cli.options import PLAN_FILE
from alpa_explore.cli.output import check_file, complain, print_json
from alpa_explore.plans.export.export import TARGETS

COMMAND = f"""export  write a plan for Megatron-LM, NeMo, torchtitan or PyTorch
    Write a plan in the form of another tool: a shell script for Megatron-LM, a config for NeMo (Megatron-Bridge) or
    torchtitan, or PyTorch code (DTensor, FSDP2, pipelining) that runs under torchrun.
{PLAN_FILE}
--to ({"|".join(TARGETS)}, required)  the tool
-o --output FILE  write the file in place of printing it
--json  print the text and what it does not express as JSON"""


def run(options: argparse.Namespace) -> int:
    """Print or write the file."""
    from alpa_explore.plans.plan import load_plan
    from alpa_explore.questions.exported import export
    from alpa_explore.store.write import write_text

    check_file(options.output, "The export")
    exported = export(load_plan(options.file), options.to)
    if options.output is not None:
        write_text(options.output, exported.text, "The export")
    if options.json:
        limits = [limit._asdict() for limit in exported.limits]
        print_json({"target": exported.target, "text": exported.text, "limits": limits})
    elif options.output is None:
        print(exported.text, end="")
    for limit in exported.limits:
        complain(f"not expressed: {limit}")
    return 0
