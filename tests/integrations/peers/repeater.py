"""A server of `/v1/responses` whose model repeats its prompt."""

from common import build_response
from fastapi import FastAPI

model = FastAPI()


@model.post("/v1/responses")
async def respond(body: dict):
    return build_response(body["input"][-1]["content"])
