"""An agent at work on a task of several steps: it asks a model, uses a tool, asks again, and knows nothing of energy.

Its calls become spans by an existing instrumentation of the `openai` package; its tools have spans by OpenTelemetry's
own API, as agent frameworks make them. The model is a small server beside it whose words mean nothing, so that what to
do next is in a list and not in its answers. `stepmeter sample` reads the server's counters meanwhile.

    pip install openai opentelemetry-instrumentation-openai
    stepmeter run --name agent examples/agent/agent.py
    stepmeter energy agent --genai
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from openai import OpenAI
from opentelemetry import trace

TASK = "Which of the numbers below 100000 are primes and end in 7, and how many are there? Think step by step. "
TOOLS = ("sieve", "filter", "count")
LIMIT = 100_000

tracer = trace.get_tracer("agent")


def sieve(_):
    """All primes below the limit."""
    found = bytearray([1]) * LIMIT
    found[:2] = b"\0\0"
    for number in range(2, LIMIT):
        if found[number]:
            found[number * number :: number] = bytes(len(range(number * number, LIMIT, number)))
    return [number for number in range(LIMIT) if found[number]]


def use(tool, value):
    """Use a tool."""
    tools = {"sieve": sieve, "filter": lambda numbers: [n for n in numbers if n % 10 == 7], "count": len}
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=about):
        return tools[tool](value)


def ask(client, messages, tokens):
    """Ask the model, and listen until it has finished."""
    answer = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=tokens, stream=True, stream_options={"include_usage": True}
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


def work(client, tokens):
    """The whole task."""
    messages, value = [{"role": "user", "content": TASK * 4}], None
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for tool in TOOLS:
            messages.append({"role": "assistant", "content": ask(client, messages, tokens)})
            value = use(tool, value)
            messages.append({"role": "tool", "tool_call_id": tool, "content": str(value)[:200]})
        ask(client, messages, tokens)
    return value


@contextlib.contextmanager
def beside(*command, **pipes):
    """A process that is no part of the task and is not instrumented; it ends with the block."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen([sys.executable, *command], env=environ, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()


def main():
    """Start the server and the sampling, and do the task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each answer")
    arguments = parser.parse_args()
    with beside(Path(__file__).parent / "server.py", stdout=subprocess.PIPE) as server:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        sample = ("sample", "--no-collector", "--scrape", f"{url}/metrics", "--engine", "vllm", "--interval", "0.05")
        with beside("-m", "stepmeter.cli", *sample, stderr=subprocess.PIPE) as sampling:
            sampling.stderr.readline()  # it says so when first readings are there
            with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
                print(f"{work(client, arguments.tokens)} numbers")
            time.sleep(1)


if __name__ == "__main__":
    main()
