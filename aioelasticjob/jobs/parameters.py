"""The job parameter as a value of a pydantic model, for handlers that created jobs name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from aioelasticjob.config.mistakes import mistakes
from aioelasticjob.errors import InvalidSetting, error_text
from aioelasticjob.host.user_code import UserCode


def read_parameter(model: type[BaseModel] | None, text: str) -> BaseModel | None:
    """Return a job parameter as the model's value; None without a model.  An empty text is an empty object.

    Raises:
        InvalidSetting: the model refuses it.
    """
    if model is None:
        return None
    try:
        with UserCode("the model"):  # its validators
            return model.model_validate_json(text or "{}")
    except ValidationError as error:
        mistake = next(mistakes(error))
        why = f"{model.__name__} refuses it: {mistake.setting}: {mistake.expected}"
        raise InvalidSetting("job_parameter", text, why) from None
    except Exception as error:
        raise InvalidSetting("job_parameter", text, f"{model.__name__} refuses it: {error_text(error)}") from error


def schema_of(model: object) -> dict[str, Any] | None:
    """Return the JSON schema of a model; None without a model.

    Raises:
        InvalidSetting: it is no pydantic model, or it has no schema.
    """
    if model is None:
        return None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise InvalidSetting("parameter", model, "must be a pydantic model, or None")
    try:
        with UserCode("the model"):
            return model.model_json_schema()
    except Exception as error:
        raise InvalidSetting("parameter", model, f"has no JSON schema: {error_text(error)}") from error
