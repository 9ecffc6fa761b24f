"""Write small files of ONNX by hand: their format is protobuf, so that no further package is needed."""


def number(field, value):
    """Return an integer field."""
    return varint(field << 3) + varint(value)


def part(field, value):
    """Return a field of bytes, text or another message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value):
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def tensor(name, kind, shape):
    """Return a ValueInfoProto; a size is a number, or a name if it is open."""
    sizes = [number(1, one) if isinstance(one, int) else part(2, one) for one in shape]
    dims = b"".join(part(1, size) for size in sizes)
    return part(1, name) + part(2, part(1, number(1, kind) + part(2, dims)))


def model(shape=("batch", 3, 8, 8), kind=1, steps=("GlobalAveragePool", "Flatten"), metadata=None, weights=None):
    """Return a file whose network applies the steps to its input; kind 1 is float32, 2 is uint8, 7 is int64.

    `weights` names another file with three numbers, which are added to the channels first.
    """
    names = ["images", *(f"step{i}" for i in range(len(steps)))]
    nodes = [
        part(1, part(1, a) + part(2, b) + part(4, step)) for a, b, step in zip(names, names[1:], steps, strict=False)
    ]
    if kind == 2:  # pooling takes no bytes
        cast = part(1, "images") + part(2, "floats") + part(4, "Cast")
        cast += part(5, part(1, "to") + number(3, 1) + number(20, 2))
        nodes[0] = part(1, part(1, "floats") + part(2, names[1]) + part(4, steps[0]))
        nodes.insert(0, part(1, cast))
    if weights is not None:
        added = part(1, "images") + part(1, "weights") + part(2, "shifted") + part(4, "Add")
        nodes[0] = part(1, part(1, "shifted") + part(2, names[1]) + part(4, steps[0]))
        nodes.insert(0, part(1, added))
    result = [f"out{i}" for i in range(2 if "Flatten" in steps else 4)]
    graph = b"".join(nodes) + part(2, "graph")
    if weights is not None:
        sizes = b"".join(number(1, one) for one in (1, 3, 1, 1))
        place = part(13, part(1, "location") + part(2, weights))
        graph += part(5, sizes + number(2, 1) + part(8, "weights") + place + number(14, 1))
    graph += part(11, tensor("images", kind, shape))
    graph += part(12, tensor(names[-1], 1, result))
    more = b"".join(part(14, part(1, key) + part(2, value)) for key, value in (metadata or {}).items())
    return number(1, 8) + part(7, graph) + part(8, part(1, "") + number(2, 17)) + more
