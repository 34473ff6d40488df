"""tinker-cookbook's environment: `step` as its rollouts call it, with a renderer of single
characters."""

from types import SimpleNamespace

from common import ROW, TASK, Characters, run, told

from gradus.integrations.tinker import GradusEnv


class Renderer:
    def get_stop_sequences(self):
        return [Characters.eos_token]

    def parse_response(self, action):
        return {"role": "assistant", "content": Characters().decode(action)}, SimpleNamespace(
            is_clean=True
        )


async def reward(text):
    environment = GradusEnv(Renderer(), ROW["prompt"], TASK, "ocaml", deadline_s=20)
    return (await environment.step(Characters().encode(text))).reward


if __name__ == "__main__":
    run(told(reward, lambda: reward("x")))
