"""``shaderloom-runtime devices | demo | verify``: the only module that prints or exits.

Exit codes: 0 fine; 1 a result past its bound, a validation message, or a device that failed;
2 bad usage, or nothing to run on (no loader, driver, device, validation layer, built data).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .demo import run_demo
from .device import list_devices, open_device
from .errors import NoValidationLayer, ShaderloomError, VulkanError
from .info import DeviceInfo
from .registry import load_registry
from .runner import missing
from .verify import CASES, QUICK_CASES, verify


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()  # so that a closed pipe shows here
    except NoValidationLayer as error:
        print(f"shaderloom-runtime: error: {error}, or add --no-validation", file=sys.stderr)
        return 2
    except ShaderloomError as error:
        print(f"shaderloom-runtime: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, VulkanError) else 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # e.g. piped into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shaderloom-runtime", description="Run the generated shaders on a Vulkan device."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument(
        "--device",
        metavar="X",
        help="index or part of a name; default: $SHADERLOOM_DEVICE, else a GPU before software",
    )

    devices = commands.add_parser("devices", help="list the Vulkan devices")
    devices.set_defaults(run=_devices)

    demo = commands.add_parser(
        "demo", parents=[chosen], help="run one convolution fused and in separate dispatches"
    )
    demo.set_defaults(run=_demo)

    check = commands.add_parser(
        "verify", parents=[chosen], help="hold every variant against float64 NumPy"
    )
    check.add_argument("--only", default="*", metavar="GLOB", help="run matching variants only")
    check.add_argument(
        "--quick", action="store_true", help="each epilogue on one convolution instead of all"
    )
    check.add_argument(
        "--no-validation", action="store_true", help="run without the Vulkan validation layer"
    )
    check.set_defaults(run=_verify)
    return parser


def _devices(_options: argparse.Namespace) -> int:
    for info in list_devices():
        print("\n".join(_described(info)))
    return 0


def _described(info: DeviceInfo) -> list[str]:
    """Return a device's name line, what it is, and the variants that it cannot run."""
    registry = load_registry()
    unable = missing(registry, info, info.features)
    version = ".".join(map(str, info.api_version))
    return [
        f"{info.index}: {info.name}",
        f"   {info.type}, class {info.device_class}, Vulkan {version}, "
        f"{info.driver_name} {info.driver_version}".rstrip(),
        f"   runs {len(registry.shaders) - len(unable)} of {len(registry.shaders)} variants",
        *(f"   not {name}: {why}" for name, why in unable.items()),
    ]


def _demo(options: argparse.Namespace) -> int:
    with open_device(options.device) as device:
        comparison = run_demo(device)
    print("\n".join(comparison.lines()))
    return 0 if comparison.ok else 1


def _verify(options: argparse.Namespace) -> int:
    validation = not options.no_validation
    cases = QUICK_CASES if options.quick else CASES
    with open_device(options.device, validation=validation) as device:
        report = verify(device, options.only, cases)
    # After closing, as validation then says what was left behind.
    for line in report.lines():
        print(line)
    for message in device.messages:
        print(f"error: validation: {message}")
    for name in sorted(device.withheld):
        print(f"note: the validation layer is too old for {name}, which was left off")
    said = f"{len(device.messages)} messages" if validation else "off"
    print(f"{device.info.name}: validation {said}")
    return 0 if report.ok and not device.messages else 1
