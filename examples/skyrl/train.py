"""GRPO with SkyRL: registers the environment, then runs SkyRL's own experiment. Options are those
of SkyRL."""

import hydra
import ray
from skyrl_gym.envs import register


def register_gradus() -> None:
    register(id="gradus", entry_point="gradus.integrations.skyrl:GradusEnv")


@ray.remote(num_cpus=1)
def run(config) -> None:
    from skyrl_train.entrypoints.main_base import BasePPOExp

    register_gradus()
    BasePPOExp(config).run()


def main() -> None:
    from skyrl_train.entrypoints.main_base import config_dir, validate_cfg
    from skyrl_train.utils import initialize_ray

    @hydra.main(config_path=config_dir, config_name="ppo_base_config", version_base=None)
    def start(config) -> None:
        validate_cfg(config)
        initialize_ray(config)
        ray.get(run.remote(config))

    start()


if __name__ == "__main__":
    main()
