"""Programs that ask a gateway with unmodified libraries: each is the text of a process, its last line the finding."""

from __future__ import annotations

LANGCHAIN = """
import json
from typing import Literal
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict

class city(BaseModel):
    "a city."
    model_config = ConfigDict(extra="forbid")
    city: Literal["bern", "rome"]
    cold: bool

model = ChatOpenAI(model="toy", timeout=60, max_retries=4)
found = [model.with_structured_output(city, method=how).invoke("is it cold in rome?")
         for how in ("json_schema", "function_calling")]
bound = model.bind_tools([city], tool_choice="any").invoke("is it cold in rome?")
print(json.dumps([type(one).__name__ for one in found] + [bound.tool_calls[0]["name"]]))
"""

LITELLM = """
import json
import litellm
form = {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads(SCHEMA)}}
asked = {"model": "openai/toy", "messages": [{"role": "user", "content": "is it cold in rome?"}], "timeout": 60}
answer = litellm.completion(**asked, response_format=form)
tool = {"type": "function", "function": {"name": "weather", "parameters": json.loads(SCHEMA)}}
called = litellm.completion(**asked, tools=[tool], tool_choice="required")
name = called.choices[0].message.tool_calls[0].function.name
print(json.dumps([json.loads(answer.choices[0].message.content), name]))
"""

AGENTS = """
import asyncio, json
import agents  # 4 s of processor time: one program asks in both ways
from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from typing import Literal

set_tracing_disabled(True)
asked = []

@function_tool
def weather(city: Literal["bern", "rome"], cold: bool) -> str:
    "The weather in a city."
    asked.append(city)
    return "it snows in " + city

def answer(kind):
    model = getattr(agents, kind)(model="toy", openai_client=AsyncOpenAI(max_retries=4))
    agent = Agent(name="Asker", instructions="ask.", model=model, tools=[weather],
                  model_settings=ModelSettings(tool_choice="required", max_tokens=160, parallel_tool_calls=False),
                  tool_use_behavior="stop_on_first_tool")
    asked.clear()
    done = asyncio.run(Runner.run(agent, "is it cold in rome?"))
    return [*asked], done.final_output

print(json.dumps({kind: answer(kind) for kind in ("OpenAIChatCompletionsModel", "OpenAIResponsesModel")}))
"""

PYDANTIC = """
import json
from typing import Literal
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

class City(BaseModel):
    city: Literal["bern", "rome"]
    cold: bool

agent = Agent(OpenAIChatModel("toy"), output_type=City)
found = agent.run_sync("is it cold in rome?")
print(json.dumps([type(found.output).__name__, found.output.city]))
"""

SMOLAGENTS = """
import json
from typing import Literal
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent

class Weather(Tool):
    name, description, output_type = "weather", "The weather in a city.", "string"
    inputs = {"city": {"type": "string", "description": "which", "enum": ["bern", "rome"]}}
    asked = []

    def forward(self, city: str) -> str:
        self.asked.append(city)
        return "it snows in " + city

model = OpenAIServerModel("toy", max_tokens=160, parallel_tool_calls=False)
tool = Weather()
answer = model.generate([{"role": "user", "content": "is it cold in rome?"}], tools_to_call_from=[tool])
(call,) = answer.tool_calls
agent = ToolCallingAgent([tool], model, max_steps=2, verbosity_level=0)
agent.tools = {"weather": tool}
# The toy model reads a thousand letters.
agent.prompt_templates |= {"system_prompt": "call.", "final_answer": {"pre_messages": "", "post_messages": "say."}}
agent.run("is it cold in rome?", max_steps=2)
calls = [one.function.name for step in agent.memory.steps for one in getattr(step, "model_output_message", None)
         and step.model_output_message.tool_calls or []]
print(json.dumps([call.function.name, json.loads(call.function.arguments), calls, tool.asked,
                  answer.token_usage.output_tokens]))
"""

NODE = """
const OpenAI = require(process.env.PACKAGE);
const schema = JSON.parse(process.env.SCHEMA);
const tool = { type: "function", function: { name: "weather", parameters: schema, strict: true } };
const asked = { model: "toy", messages: [{ role: "user", content: "is it cold in rome?" }] };

async function main() {
  const openai = new OpenAI({ maxRetries: 4 });
  const form = { type: "json_schema", json_schema: { name: "weather", schema, strict: true } };
  const whole = await openai.chat.completions.create({ ...asked, response_format: form });
  let streamed = "";
  for await (const chunk of await openai.chat.completions.create({ ...asked, response_format: form, stream: true }))
    streamed += chunk.choices[0]?.delta?.content ?? "";
  const runner = openai.chat.completions.stream({ ...asked, tools: [tool], tool_choice: "required",
                                                  parallel_tool_calls: false });
  const called = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0].function;
  const text = { format: { type: "json_schema", name: "weather", schema } };
  const response = await openai.responses.create({ model: "toy", input: "is it cold?", text });
  let refused = "";
  try { await openai.chat.completions.create({ ...asked, functions: [{ name: "f" }] }); }
  catch (error) { refused = [error.constructor.name, error.status, error.code, error.param].join(" "); }
  const models = [];
  for await (const model of openai.models.list()) models.push(model.id);
  console.log(JSON.stringify([whole.choices[0].message.content, streamed, called, response.output_text, refused,
                              models]));
}
main().catch((error) => { console.error(error); process.exit(1); });
"""
