"""The page of every call and message, from the comments of the proto files."""

import re
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

FIELD = descriptor_pb2.FieldDescriptorProto
# Numbers of the fields in descriptor.proto: paths of comments consist of them.
SERVICE, METHOD, MESSAGE, ENUM, VALUE, NESTED, NESTED_ENUM, OF_MESSAGE = 6, 2, 4, 5, 2, 3, 4, 2


def page(folder):
    """Markdown of the proto files in a folder."""
    names = sorted(str(path.relative_to(folder)) for path in Path(folder, "sparsefw/v1").glob("*.proto"))
    out = ["# gRPC: every call and message", "",
           "Made from the comments of `proto/sparsefw/v1`. [The gRPC API](api.md) says how to use it.", ""]
    for file in files(folder, names):
        comments = {tuple(place.path): place.leading_comments or place.trailing_comments
                    for place in file.source_code_info.location}
        for index, service in enumerate(file.service):
            out += [f"## {service.name}", "", *text(comments.get((SERVICE, index))), ""]
            for number, method in enumerate(service.method):
                out += [f"### {method.name}", "", f"{side(method, 'client')} → {side(method, 'server')}", "",
                        *text(comments.get((SERVICE, index, METHOD, number))), ""]
    for file in files(folder, names):
        comments = {tuple(place.path): place.leading_comments or place.trailing_comments
                    for place in file.source_code_info.location}
        out += [f"## {Path(file.name).name}", "", *text(comments.get((12,))), ""]
        for index, message in enumerate(file.message_type):
            out += of_message(message, message.name, (MESSAGE, index), comments)
        for index, enum in enumerate(file.enum_type):
            out += of_enum(enum, enum.name, (ENUM, index), comments)
    return "\n".join(out) + "\n"


def files(folder, names):
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "set.binpb"
        builtin = Path(protoc.__file__).parent / "_proto"
        code = protoc.main(["protoc", f"-I{folder}", f"-I{folder}/third_party", f"-I{builtin}", "--include_source_info",
                            f"--descriptor_set_out={path}", *names])
        if code != 0:
            raise RuntimeError(f"protoc ended with {code}")
        return descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file


def side(method, of):
    name = method.input_type if of == "client" else method.output_type
    streams = method.client_streaming if of == "client" else method.server_streaming
    return ("stream of " if streams else "") + linked(name)


def linked(name):
    name = name.removeprefix(".")
    if not name.startswith("sparsefw.v1."):
        return f"`{name}`"
    name = name.removeprefix("sparsefw.v1.")
    return f"[`{name}`](#{anchor(name)})"


def anchor(name):
    return "message-" + name.lower().replace(".", "-")


def heading(name):
    return [f"### {name} {{ #{anchor(name)} }}", ""]


def of_message(message, name, path, comments):
    if message.options.map_entry:
        return []
    out = [*heading(name), *text(comments.get(path)), ""]
    if message.field:
        out += ["| field | type | |", "|---|---|---|"]
    for index, field in enumerate(message.field):
        words = " ".join(text(comments.get((*path, OF_MESSAGE, index)))).replace("|", "\\|")
        choice = f" *One of `{message.oneof_decl[field.oneof_index].name}`.*" if (
            field.HasField("oneof_index") and not field.proto3_optional) else ""
        out.append(f"| `{field.name}` = {field.number} | {type_of(field, message)} | {words}{choice} |")
    out.append("")
    for index, inner in enumerate(message.nested_type):
        out += of_message(inner, f"{name}.{inner.name}", (*path, NESTED, index), comments)
    for index, inner in enumerate(message.enum_type):
        out += of_enum(inner, f"{name}.{inner.name}", (*path, NESTED_ENUM, index), comments)
    return out


def of_enum(enum, name, path, comments):
    out = [*heading(name), *text(comments.get(path)), "", "| value | |", "|---|---|"]
    for index, value in enumerate(enum.value):
        words = " ".join(text(comments.get((*path, VALUE, index)))).replace("|", "\\|")
        out.append(f"| `{value.name}` = {value.number} | {words} |")
    return [*out, ""]


def type_of(field, message):
    if field.type in (FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM):
        for inner in message.nested_type:
            if inner.options.map_entry and field.type_name.endswith("." + inner.name):
                key, value = inner.field
                return f"map of {type_of(key, inner)} to {type_of(value, inner)}"
        found = linked(field.type_name)
    else:
        found = FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    before = "repeated " if field.label == FIELD.LABEL_REPEATED else "optional " if field.proto3_optional else ""
    return before + found


def text(comment):
    """Lines of a comment, safe in Markdown."""
    if not comment:
        return []
    return [re.sub(r"([<>*_\[\]])", r"\\\1", line.strip()) for line in comment.strip().split("\n")]
