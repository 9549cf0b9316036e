"""What the constants of vLLM's offloading connector should be on this machine, beside its own: below which
size, and from which number of blocks on, a kernel moves them instead of the driver's batch call, and how many
multiprocessors that kernel gets. From the map of block lists and the curves over thread blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...judging.judged import Judged
from ...model import Method
from ...reports.style import SIMULATED, Style
from ...thresholds.values import SATURATED
from ...units import format_size
from .block_map import PathMap, map_of
from .block_models import VLLM_BLOCK, VLLM_BLOCKS, Constants, Point
from .saturation import Saturation, saturations
from .text import rate_of

#: Where vLLM has the constants, since pull request 42212, and the number of thread blocks of its kernel.
#: They were tuned on one H100 (pull request 57343, issue 57555).
FILE, VLLM_SMS = "vllm/v1/kv_offload/cpu/swap_blocks_triton.py", 12


def render(judged: Judged, style: Style) -> str:
    """The constants in a form to paste, with what they cost, and the curves."""
    return "\n".join(_lines(judged)) + "\n"


def _lines(judged: Judged) -> Iterator[str]:
    document = judged.document
    if document.simulated:
        yield f"{SIMULATED} (machine {document.machine.name})"
    models = {gpu.name: gpu.model for gpu in document.machine.gpus}
    maps = [path for path in map_of(document).paths if path.rule is not None and not path.while_computing]
    curves = list(saturations(document))
    seen = set[str]()
    for path in (path for path in maps if path.direction == "host_to_device"):
        gpu = path.path.rpartition(">")[2]
        if (model := models.get(gpu, gpu)) in seen:
            continue
        seen.add(model)
        back = f"{gpu}->{path.path.partition('-')[0]}"
        stores = next((one for one in maps if (one.direction, one.path) == ("device_to_host", back)), None)
        of_gpu = {one.direction: one for one in curves if one.path in (path.path, back)}
        yield f"vLLM's offloading connector on {model} ({path.path}), constants of {FILE}:"
        yield ""
        yield from _constants(path, of_gpu.get("host_to_device"))
        if stores is not None:
            yield ""
            yield f"GPU to CPU: vLLM always takes the batch call{_always_batch(stores)}"
        for curve in of_gpu.values():
            yield from _curve(curve)
        yield ""
    if not seen:
        yield "no map from host memory to a GPU was measured; measure with `wirespeed blocks --format vllm`"


def _constants(path: PathMap, curve: Saturation | None) -> Iterator[str]:
    """Each constant of this machine, with vLLM's own and what it decides."""
    rule, largest = path.rule, max(point.block for point in path.points)
    assert rule is not None
    below, number = rule.block_below, str(rule.blocks_from)
    size = str(largest + 1 if below is None else below)
    what = f"the kernel for blocks below {format_size(below or 0)}, else cuMemcpyBatchAsync"
    if below is None:
        what = f"the kernel was faster for all sizes, up to {format_size(largest)}"
    elif not below:
        what, number = "cuMemcpyBatchAsync was faster for all sizes", str(VLLM_BLOCKS)
    rows = [("THRESHOLD_BYTES", size, str(VLLM_BLOCK), what)]
    rows.append(("MIN_N", number, str(VLLM_BLOCKS), "the kernel from this number of blocks on"))
    if curve is not None:
        needed = curve.saturating.get(Method.KERNEL)
        about = f"thread blocks with which the kernel reaches {SATURATED:.0%} of the fastest rate"
        if needed is None:
            about = "more thread blocks than were measured: the kernel is slower than others with all of them"
        rows.append(("NUM_SMS", str(needed or VLLM_SMS), str(VLLM_SMS), about))
    for name, value, own, about in rows:
        yield f"  {name + ' = ' + value:<28}# vLLM: {own:<6} {about}"
    yield f"  {_cost(rule)}"


def _cost(rule: Constants) -> str:
    """What the constants lose against the better one of kernel and batch call at each size and number."""
    return (
        f"at worst {rule.loss:.0%} slower than the better one of {rule.kernel} and batch call; with vLLM's "
        f"constants {rule.usual_loss:.0%}"
    )


def _always_batch(path: PathMap) -> str:
    """How much slower than a kernel the batch call is, at worst, and for which list."""
    kernels = (Method.KERNEL, Method.KERNEL_BULK)

    def loss(point: Point) -> float:
        others = [point.rates[kernel] for kernel in kernels if kernel in point.rates]
        return max(others, default=0.0) / point.rates[Method.BATCH] - 1

    known = [point for point in path.points if Method.BATCH in point.rates]
    worst = max(known, key=loss, default=None)
    if worst is None:
        return ""
    if loss(worst) <= 0:
        return ", which is the fastest here"
    where = f"{worst.blocks} blocks of {format_size(worst.block)}"
    return f", which takes up to {1 + loss(worst):.2g} times as long as a kernel ({where})"


def _curve(curve: Saturation) -> Iterator[str]:
    """The rates of each kernel over thread blocks, and the numbers that saturate the link."""
    counts = sorted({count for rates in curve.rates.values() for count in rates})
    yield ""
    yield f"{curve.path}: GB/s over thread blocks, each on a multiprocessor"
    yield f"  {'':<11}" + "".join(f"{count:>6}" for count in counts)
    for kernel, rates in curve.rates.items():
        texts = (rate_of(rates[count]) if count in rates else "-" for count in counts)
        yield f"  {kernel:<11}" + "".join(f"{text:>6}" for text in texts)
    enough = [f"{n} by {kernel}" for kernel, n in curve.saturating.items()]
    yield f"  thread blocks that saturate the link: {', '.join(enough)}"
