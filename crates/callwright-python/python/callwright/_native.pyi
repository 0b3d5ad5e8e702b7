from typing import List, Literal, Optional, Tuple, final

__all__ = ["CallwrightError", "NativeParser", "__version__", "check_template", "formats", "parse", "render", "render_variables"]
__version__: str

class CallwrightError(ValueError):
    kind: Literal["io", "syntax", "tools", "messages", "template", "format", "config"]
    message: str
    hint: Optional[str]
    file: Optional[str]
    line: Optional[int]
    column: Optional[int]

@final
class NativeParser:
    def __new__(
        cls,
        format: Optional[str],
        tools: Optional[str],
        template: Optional[str],
        prompt_tail: str,
        reasoning: str,
        repair: bool,
        other_forms: str,
    ) -> NativeParser: ...
    def feed(self, piece: bytes) -> str: ...
    def finish(self) -> str: ...
    def message(self) -> str: ...
    def runnable_calls(self) -> str: ...

def parse(
    text: bytes,
    format: Optional[str],
    tools: Optional[str],
    template: Optional[str],
    prompt_tail: str,
    reasoning: str,
    repair: bool,
    other_forms: str,
    partial: bool,
) -> str: ...
def render(
    template: str,
    messages: str,
    tools: Optional[str],
    format: Optional[str],
    add_generation_prompt: bool,
    bos_token: str,
    eos_token: str,
    variables: str,
    now: Optional[str],
) -> Tuple[str, str, str, List[str]]: ...
def render_variables(template: str, variables: str, now: Optional[str]) -> str: ...
def check_template(template: str, format: Optional[str], variables: str) -> str: ...
def formats() -> str: ...
