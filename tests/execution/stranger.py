"""A program of another user of this machine, who tries to run a function in every process that listens.

    python stranger.py PORT,PORT,…

Dask's own messages, without a key and with a key of the stranger's. Where it is started by root it is user 65534 from
then on. Prints, as JSON, what came of each try.
"""

import asyncio
import json
import os
import sys

from distributed.comm import connect
from distributed.protocol.pickle import dumps
from distributed.security import Security

NOBODY = 65534
SECONDS = 5
"""A port that speaks another protocol never answers."""


def proof():
    return f"ran as user {os.getuid()}"


async def ask(port, scheme, key, operation):
    call = {"function": dumps(proof), "args": dumps(()), "kwargs": dumps({}), "wait": True, "reply": True}
    channel = await connect(f"{scheme}://127.0.0.1:{port}", timeout=SECONDS, **key)
    try:
        await channel.write({"op": operation, **call})
        return str(await channel.read())
    finally:
        channel.abort()


async def attempt(*arguments):
    try:
        return await asyncio.wait_for(ask(*arguments), SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        return f"refused: {type(error).__name__}"


async def main(ports):
    keys = {"tcp": {}, "tls": Security.temporary().get_connection_args("client")}
    if os.geteuid() == 0:
        os.setuid(NOBODY)  # after the imports: it may not enter the folders of the libraries
    tries = [
        (port, scheme, key, op) for port in ports for scheme, key in keys.items() for op in ("run", "run_function")
    ]
    outcomes = await asyncio.gather(*(attempt(*arguments) for arguments in tries))
    print(
        json.dumps(
            [(port, f"{scheme} {op}", found) for (port, scheme, _, op), found in zip(tries, outcomes, strict=True)]
        )
    )
    sys.stdout.flush()
    os._exit(0)  # connections that hang would be waited for


asyncio.run(main([int(port) for port in sys.argv[1].split(",")]))
