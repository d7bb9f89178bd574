"""Validates requests to AWS against botocore's model of each service.

Reads a JSON list of {"target": X-Amz-Target or "", "body": text} and writes one of {"operation": "ec2:RunInstances", "problems": [text]}.
What a request says and the model doesn't know is a problem, and so is what the model requires, a value of another type, and one that is
not in an enumeration.
"""

import base64
import json
import re
import sys
import urllib.parse

import botocore.session
import botocore.validate

SERVICES = ("ec2", "sts", "ssm", "secretsmanager", "sqs", "pricing")
session = botocore.session.get_session()
MODELS = {name: session.get_service_model(name) for name in SERVICES}


def scalar(shape, text, where, problems):
    """Turns a text of a query into a value of the shape's type."""
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return {"true": True, "false": False}[text]
        if kind == "blob":
            return base64.b64decode(text, validate=True)
    except (ValueError, KeyError):
        problems.append(f"{where} is {text!r}, want a {kind}")
    return text


def query(shape, prefix, params, used, protocol, problems):
    """Puts the flattened parameters of a query together by a shape."""
    kind = shape.type_name
    if kind == "structure":
        out = {}
        for name, member in shape.members.items():
            key = member.serialization.get("name", name)
            if protocol == "ec2":
                key = member.serialization.get("queryName") or key[0].upper() + key[1:]
            key = f"{prefix}.{key}" if prefix else key
            if any(p == key or p.startswith(key + ".") for p in params):
                out[name] = query(member, key, params, used, protocol, problems)
        return out
    if kind == "list":
        step = "" if protocol == "ec2" or shape.serialization.get("flattened") else ".member"
        out, n = [], 1
        while any(p == f"{prefix}{step}.{n}" or p.startswith(f"{prefix}{step}.{n}.") for p in params):
            out.append(query(shape.member, f"{prefix}{step}.{n}", params, used, protocol, problems))
            n += 1
        return out
    used.add(prefix)
    return scalar(shape, params.get(prefix, ""), prefix, problems)


def known(shape, value, where, problems):
    """Checks what botocore's validator does not: members that the model doesn't have, enumerations and patterns."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        for name, v in value.items():
            if name in shape.members:
                known(shape.members[name], v, f"{where}.{name}", problems)
            else:
                problems.append(f"{where}.{name} is not in the model")
    elif kind == "list" and isinstance(value, list):
        for i, v in enumerate(value):
            known(shape.member, v, f"{where}[{i}]", problems)
    elif kind == "string":
        if shape.enum and value not in shape.enum:
            problems.append(f"{where} is {value!r}, not one of {len(shape.enum)} values such as {shape.enum[0]!r}")
        pattern = shape.metadata.get("pattern")
        if pattern and not re.search(pattern, value):
            problems.append(f"{where} is {value!r}, which does not match {pattern}")


def check(request):
    problems = []
    if request["target"]:
        prefix, name = request["target"].split(".")
        service = next(s for s in SERVICES if MODELS[s].metadata.get("targetPrefix") == prefix)
        operation = MODELS[service].operation_model(name)
        value = json.loads(request["body"])
    else:
        params = dict(urllib.parse.parse_qsl(request["body"], keep_blank_values=True))
        name, version = params.pop("Action"), params.pop("Version")
        service = next(s for s in SERVICES if MODELS[s].metadata["apiVersion"] == version and "targetPrefix" not in MODELS[s].metadata)
        operation = MODELS[service].operation_model(name)
        used = set()
        value = query(operation.input_shape, "", params, used, MODELS[service].metadata["protocol"], problems)
        problems += [f"parameter {p} is not in the model" for p in sorted(set(params) - used)]
    if operation.input_shape is not None:
        known(operation.input_shape, value, name, problems)
        report = botocore.validate.ParamValidator().validate(value, operation.input_shape)
        if report.has_errors():
            problems.append(report.generate_report())
    return {"operation": f"{service}:{name}", "problems": problems}


json.dump([check(r) for r in json.load(sys.stdin)], sys.stdout)
