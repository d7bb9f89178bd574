"""Prints what Terraform's AWS provider takes, for some types, as JSON.

    python3 schema.py WHEEL aws_sqs_queue data.aws_region ...

WHEEL is of cdktf-cdktf-provider-aws, whose classes HashiCorp generated from the provider's schema. They are read and not
run, so nothing else has to be installed.
"""

import ast
import json
import re
import sys
import zipfile

PACKAGE = "cdktf_cdktf_provider_aws"
# Terraform's own arguments of any resource, and the hidden one of the SDK.
META = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners", "id"}


class Module:
    """The classes of one type."""

    def __init__(self, text):
        self.text = text
        self.classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}

    def main(self):
        """The class of the resource or data source."""
        for node in self.classes.values():
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            if bases & {"TerraformResource", "TerraformDataSource"}:
                return node
        raise SystemExit("no class of a resource")

    def arguments(self, node, skipped=frozenset()):
        """The arguments of a class by name."""
        init = next(f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__")
        blocks = set(re.findall(r":param (\w+): \1 block\.", ast.get_docstring(init) or ast.get_docstring(node) or ""))
        found = {}
        for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults):
            if argument.arg not in skipped:
                found[argument.arg] = self.argument(argument, default is None, argument.arg in blocks)
        return found

    def argument(self, argument, required, block):
        annotation = ast.unparse(argument.annotation)
        nested = [name for name in re.findall(r"'(\w+)'", annotation) if name in self.classes]
        described = {"required": True} if required else {}
        if nested:
            described["block" if block else "object"] = self.arguments(self.classes[nested[0]])
            return described
        if "typing.Sequence" in annotation:
            described["type"] = "list"
        elif "typing.Mapping" in annotation:
            described["type"] = "map"
        elif "jsii.Number" in annotation:
            described["type"] = "number"
        elif "builtins.bool" in annotation:
            described["type"] = "bool"
        else:
            described["type"] = "string"
        return described


def attributes(node):
    """What can be referred to."""
    names = {f.name for f in node.body if isinstance(f, ast.FunctionDef) and any(ast.unparse(d) == "builtins.property" for d in f.decorator_list)}
    return sorted(n for n in names if not n.endswith("_input"))


def main(wheel, types):
    described, versions = {}, set()
    with zipfile.ZipFile(wheel) as archive:
        for name in types:
            folder = "data_" + name.removeprefix("data.") if name.startswith("data.") else name.removeprefix("aws_")
            module = Module(archive.read(f"{PACKAGE}/{folder}/__init__.py").decode())
            versions |= set(re.findall(r"hashicorp/aws/([0-9.]+)/", module.text))
            node = module.main()
            described[name] = {"arguments": module.arguments(node, META), "attributes": attributes(node)}
    if len(versions) != 1:
        raise SystemExit(f"the wheel names several versions of the provider: {sorted(versions)}")
    lines = [f"{json.dumps(name)}: {json.dumps(d, sort_keys=True)}" for name, d in sorted(described.items())]
    print(f'{{"provider": "hashicorp/aws {versions.pop()}", "types": {{')
    print(",\n".join(lines))
    print("}}")


main(sys.argv[1], sys.argv[2:])
