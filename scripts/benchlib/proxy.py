"""A TCP relay that lets every request wait. Run as ``proxy.py PORT TARGET_PORT MILLISECONDS``.

What a client sends goes on after the delay, bytes that follow each other closely wait together, so
a request waits once however long it is; answers go back at once. Connecting does not wait.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

CHUNK = 1 << 18


async def _upstream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait: float
) -> None:
    loop = asyncio.get_running_loop()
    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def release() -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(release())
        data = b"-"
        while data:
            data = await reader.read(CHUNK)
            await held.put((loop.time() + wait, data))


async def _downstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port: int, target: int, wait: float) -> None:
    """Relay until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(
                _upstream(reader, far_writer, wait),
                _downstream(far_reader, writer),
                return_exceptions=True,
            )
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
