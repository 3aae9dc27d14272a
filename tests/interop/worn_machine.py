"""A gateway whose machine says what a board with a card would: its /sys and its uptime are made up, in a mount
namespace of its own."""

import os
import shlex
from pathlib import Path

from gateway import Gateway

CARD = "devices/block/mmcblk0/mmcblk0p2"
FIRMWARE = "devices/platform/soc/soc:firmware/get_throttled"
UPTIME_S = 86_400
SECTORS = 2048
"""Of 512 bytes, written in that time."""

STAGES = [
    ({"class/thermal/thermal_zone0/temp": "48312", FIRMWARE: "0", f"{CARD}/partition": "2",
      "block/mmcblk0/stat": f"1 2 3 4 5 6 {SECTORS} 8"},
     {"Temperature": ["48.3 °C", ""], "Power": ["voltage and frequency are right", "good"],
      "Wear": ["mmcblk0: 1.0 MiB written a day", ""]}),
    ({"class/thermal/thermal_zone0/temp": "82400", FIRMWARE: "10001", "block/mmcblk0/device/life_time": "0x01 0x08"},
     {"Temperature": ["82.4 °C", "bad"], "Power": ["now: the supply voltage is too low", "bad"],
      "Wear": ["mmcblk0: at most 80 % of its life used, 1.0 MiB written a day", "warn"]}),
    ({FIRMWARE: "40000", "block/mmcblk0/device/life_time": "0x01 0x0a", "fs/ext4/mmcblk0p2/errors_count": "3"},
     {"Power": ["since the machine started: the processor is slowed down", "warn"],
      "Wear": ["mmcblk0: at most 100 % of its life used, 1.0 MiB written a day, 3 errors of the file system", "bad"]}),
]
"""Files below /sys, each stage over those before, and what the page says then: text and class of each fact."""


class GatewayOfWornMachine(Gateway):
    def __init__(self, binary):
        super().__init__(binary)
        self.sys = Path(self.home.name, "sys")
        uptime = Path(self.home.name, "uptime")
        uptime.write_text(f"{UPTIME_S}.00 1.00\n")
        self.stages = iter(STAGES)
        device = os.stat(self.home.name).st_dev
        link = self.sys / f"dev/block/{os.major(device)}:{os.minor(device)}"
        link.parent.mkdir(parents=True)
        link.symlink_to(f"../../{CARD}")
        self.expected = self.advance()
        inside = 'mount --bind "$1" /sys; mount --bind "$2" /proc/uptime; shift 2; exec "$@"'
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", inside, "sh", self.sys, uptime,
                 Path(binary).resolve()]
        program = Path(self.home.name, "fogmux")
        program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        program.chmod(0o755)
        self.binary = str(program)

    def advance(self) -> dict | None:
        """Goes on to the next stage: what the page says of it, or None if there is no other."""
        files, facts = next(self.stages, (None, None))
        if files is None:
            return None
        for name, text in files.items():
            file = self.sys / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return facts
