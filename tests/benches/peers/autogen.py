"""autogen.py URL COUNT: so many parents with one sub-agent at once, and what that took: count, processor seconds, seconds."""

import asyncio
import logging
import sys
import time

import uvloop
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

# What the benchmark gives every agent.
INSTRUCTIONS = "You review the change you are given. Say what is wrong, where, and why. " * 10


def parent(client):
    """A new agent for each run: it keeps what was said."""
    child = AssistantAgent(
        name="AgentTool",
        description="Asks a sub-agent.",
        model_client=client,
        system_message=INSTRUCTIONS,
    )
    return AssistantAgent(
        name="parent",
        model_client=client,
        system_message=INSTRUCTIONS,
        tools=[AgentTool(child)],
        max_tool_iterations=5,
    )


async def run(client):
    result = await parent(client).run(task="go")
    assert result.messages[-1].content == "done", result.messages[-1]


async def main():
    url, count = sys.argv[1], int(sys.argv[2])
    client = OpenAIChatCompletionClient(
        model="model",
        api_key="key",
        parallel_tool_calls=False,
        base_url=url,
        timeout=120,
        max_retries=0,
        model_info=ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        ),
    )
    # Connections are made in the first round, as those of the others are.
    for is_warm in (False, True):
        processor, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*[run(client) for _ in range(count)])
        if is_warm:
            print([count, time.process_time() - processor, time.perf_counter() - began])


logging.disable(logging.CRITICAL)
uvloop.run(main())
