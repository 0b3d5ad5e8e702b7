# A formula for Homebrew, which compiles the program where it is installed. .github/workflows/release.yml puts the version and the
# checksum in. Nobody has installed it yet: there is no release.
class Callwright < Formula
  desc "Reliable tool calls from local models: the program, and its server"
  homepage "https://github.com/callwright/callwright"
  url "https://github.com/callwright/callwright/archive/refs/tags/vVERSION.tar.gz"
  sha256 "SHA256"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/callwright/callwright.git", branch: "main"

  depends_on "cmake" => :build
  depends_on "llvm" => :build # libclang
  depends_on "rust" => :build

  def install
    ENV["LIBCLANG_PATH"] = Formula["llvm"].opt_lib
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"callwright", "completions")
    mkdir "man"
    system bin/"callwright", "man", "man"
    man1.install Dir["man/*.1"]
  end

  test do
    (testpath/"tools.json").write <<~JSON
      [{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    JSON
    assert_match "get_weather", shell_output("#{bin}/callwright run --tools tools.json \"What's the weather in Oslo?\"")
  end
end
