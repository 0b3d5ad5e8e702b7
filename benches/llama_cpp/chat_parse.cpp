// Times llama.cpp's own chat parser, which parses the whole text again at every token: the cost of one more delta is
// the cost of one parse of what there is so far.
//
//   chat_parse TEMPLATE < TEXT     →  {"bytes": …, "ns": …, "calls": …}, ns the least of the repetitions
#include "chat.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

int main(int argc, char ** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: chat_parse TEMPLATE < TEXT\n");
        return 2;
    }
    std::ifstream file(argv[1]);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};

    common_chat_templates_inputs inputs;
    common_chat_msg question;
    question.role = "user";
    question.content = "Write it.";
    inputs.messages = {question};
    inputs.tools = {{"write_file", "Writes a file.",
                     R"({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}})"}};
    inputs.parallel_tool_calls = true;

    const auto templates = common_chat_templates_init(nullptr, source);
    const auto chat = common_chat_templates_apply(templates.get(), inputs);
    common_chat_parser_params params(chat);
    params.parser.load(chat.parser);

    double best = 1e300;
    size_t calls = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3 || (i < 1000 && std::chrono::steady_clock::now() - start < std::chrono::seconds(2)); i++) {
        const auto before = std::chrono::steady_clock::now();
        const auto message = common_chat_parse(text, true, params);
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
        best = std::min(best, took.count());
        calls = message.tool_calls.size();
    }
    std::printf("{\"bytes\": %zu, \"ns\": %.0f, \"calls\": %zu}\n", text.size(), best, calls);
}
