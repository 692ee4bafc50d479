// `tally prepare` with files that are not plain text: links, pipes, binary data, wrong lines of JSON.
// Nothing of this ends it; each is counted, and the first few are named.
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "tasks/text/prepare/corpus.hpp"
#include "tests/core/io_files.hpp"

namespace tally::sources_test {

namespace fs = std::filesystem;
using namespace std::string_literals;

class Sources : public ::testing::Test {
 protected:
  Sources() {
    rules_.validation = rules_.test = 0;
    add("plain.txt", "a plain text");
  }
  void add(const std::string& path, std::string_view bytes) {
    fs::create_directories(fs::path(folder_.file("source/" + path)).parent_path());
    folder_.file("source/" + path, bytes);
  }
  Corpus select() {
    notes_.clear();
    const CorpusObserver observer{[](std::uint64_t) { return true; },
                                  [this](std::string_view line) { notes_ += formatted("{}\n", line); }};
    return select_texts({{folder_.file(source_), ""}}, rules_, observer);
  }
  // The paths of the texts that are taken, with blanks between.
  std::string kept() {
    const Corpus corpus = select();
    const JsonValue counts = corpus.counts(std::ssize(corpus.texts));
    dropped_ = counts.at("dropped");
    std::int64_t sum = counts.integer("kept");
    for (const JsonMember& count : dropped_.members()) sum += count.value.integer();
    EXPECT_EQ(sum, counts.integer("found")) << "each text is counted once";
    std::string paths;
    for (const CorpusText& text : corpus.texts) paths += formatted("{}{}", paths.empty() ? "" : " ", text.path);
    return paths;
  }
  std::string joined_texts() {
    std::string joined;
    for (const CorpusText& text : select().texts) joined += read_corpus_text(text, rules_.field) + "|";
    return joined;
  }
  void expect_dropped(const char* count, std::int64_t number, std::string_view note) {
    EXPECT_EQ(dropped_.integer(count), number) << count;
    EXPECT_TRUE(holds(notes_, note)) << note << "\n" << notes_;
  }

  TemporaryFolder folder_;
  std::string source_ = "source";
  CorpusRules rules_;
  std::string notes_;
  JsonValue dropped_;
};

// As the cache of a model hub: the names are links to files elsewhere.
TEST_F(Sources, LinksToFilesAreFollowed) {
  fs::create_directory(folder_.file("blobs"));
  folder_.file("blobs/1a2b", "text of a blob");
  fs::create_directories(folder_.file("source/snapshots/main"));
  fs::create_symlink("../../../blobs/1a2b", folder_.file("source/snapshots/main/train.txt"));
  EXPECT_EQ(kept(), "plain.txt snapshots/main/train.txt");
}

TEST_F(Sources, LinksThatLeadNowhereAreCounted) {
  fs::create_directories(folder_.file("source/a/b"));
  fs::create_directory_symlink(folder_.file("source"), folder_.file("source/a/b/up"));
  fs::create_directory_symlink(folder_.path(), folder_.file("source/a/out-and-in"));
  fs::create_symlink("gone.txt", folder_.file("source/broken.txt"));
  fs::create_symlink("self.txt", folder_.file("source/self.txt"));
  ASSERT_EQ(::mkfifo(folder_.file("source/pipe.txt").c_str(), 0600), 0);
  EXPECT_EQ(kept(), "plain.txt");
  expect_dropped("not_files", 3, "source/a/b/up: links to a folder");
  expect_dropped("not_files", 3, "source/pipe.txt: is a pipe");
  expect_dropped("unreadable", 2, "source/broken.txt: links to a file that does not exist");
  expect_dropped("unreadable", 2, "source/self.txt: Too many levels of symbolic links");
  rules_.strict = true;
  EXPECT_ERROR(select(), "source/broken.txt: links to a file that does not exist");
  source_ = "source/pipe.txt";
  EXPECT_ERROR(select(), "is a pipe, not a file");
}

TEST_F(Sources, BinaryFilesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"PAR1\x15\0\x15\xff"s, "is a Parquet file, no text: byte 5 is zero"},
      {"\x1f\x8b\x08\0"s, "is a gzip file, no text: byte 3 is zero"},
      {"a\0b\0"s, "is no text: byte 1 is zero"},
      {std::string(100'000, 'a') + "\0"s, "is no text: byte 100000 is zero"},
  };
  for (const auto& [bytes, note] : files) {
    add("x.txt", bytes);
    EXPECT_EQ(kept(), "plain.txt");
    expect_dropped("binary", 1, formatted("source/x.txt: {}", note));
  }
  fs::remove(folder_.file("source/x.txt"));
  add("x.jsonl", files[0].first);
  EXPECT_EQ(kept(), "plain.txt");
  expect_dropped("binary", 1, formatted("source/x.jsonl: {}", files[0].second));
  fs::remove(folder_.file("source/x.jsonl"));
  add("x.bin", files[2].first);
  rules_.strict = true;
  EXPECT_ERROR(select(), "x.bin: is no text: byte 1 is zero");
}

TEST_F(Sources, WrongLinesOfJsonAreSkipped) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {R"({"text": NaN})", "line 2: byte 9"},
      {R"({"text": "a", "score": NaN})", "line 2: byte 23"},
      {R"({"text": null})", "line 2: byte 1: 'text': [jsonl] is null, not a string"},
      {R"({"text": "cut)", "line 2: byte"},
      {R"({"text": "a", "text": "b"})", "the name is used twice"},
      {R"({"content": "a", "id": 1})", "line 2: 'text' is missing; the line has content, id (--field NAME"},
      {R"([1])", "line 2: byte 0: expected an object"},
      {"\xef\xbb\xbf{\"text\": \"a\"}", "line 2: byte 0"},
  };
  for (const auto& [line, note] : lines) {
    add("a.jsonl", formatted("{{\"text\": \"one\"}}\n{}\n{{\"text\": \"two\"}}", line));
    EXPECT_EQ(kept(), "a.jsonl:1 a.jsonl:3 plain.txt") << line;
    expect_dropped("json", 1, note);
    EXPECT_TRUE(holds(notes_, "dropped: [json")) << notes_;
    EXPECT_TRUE(holds(notes_, "source/a.jsonl: line 2")) << notes_;
  }
  add("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\xff\"}\n{\"text\": \"two\"}");
  EXPECT_EQ(kept(), "a.jsonl:1 a.jsonl:3 plain.txt");
  expect_dropped("invalid", 1, "source/a.jsonl: line 2: byte 10 is not UTF-8");
  rules_.strict = true;
  EXPECT_ERROR(select(), "a.jsonl: line 2: byte 10 is not UTF-8");
  add("a.jsonl", R"({"text": null})");
  EXPECT_ERROR(select(), "a.jsonl: line 1: byte 1: 'text': [jsonl] is null, not a string");
}

// The first three are named, all are counted, and the reason is in the error if nothing is left.
TEST_F(Sources, ManyWrongLinesAreNotedOnce) {
  std::string lines;
  for (int n = 0; n < 50; ++n) lines += formatted("{}{}\"}}\n", R"({"body": "number )", n);
  add("a.jsonl", lines);
  EXPECT_EQ(kept(), "plain.txt");
  expect_dropped("json", 50, "a.jsonl: line 3: 'text' is missing");
  EXPECT_FALSE(holds(notes_, "line 4")) << notes_;
  EXPECT_TRUE(holds(notes_, "others for the same reason, which are only counted")) << notes_;
  rules_.field = "body";
  EXPECT_TRUE(holds(joined_texts(), "number 0|number 1|"));
}

TEST_F(Sources, LineEndsAndMarksAreNoPartOfLinesOfJson) {
  add("a.ndjson", "\xef\xbb\xbf{\"text\": \"one\"}\r\n\r\n  \n{\"text\": \"two\\r\\n\"}\r\n");
  EXPECT_EQ(kept(), "a.ndjson:1 a.ndjson:4 plain.txt");
  EXPECT_EQ(joined_texts(), "one|two\r\n|a plain text|");
  add("plain.txt",
      "\xef\xbb\xbf"
      "a\r\nb");
  EXPECT_TRUE(holds(joined_texts(),
                    "\xef\xbb\xbf"
                    "a\r\nb"))
      << "a text stays as it is";
  add("empty.jsonl", "");
  add("empty.txt", "");
  add("empty-text.jsonl", R"({"text": ""})");
  EXPECT_EQ(kept(), "a.ndjson:1 a.ndjson:4 plain.txt");
  EXPECT_EQ(dropped_.integer("size"), 2);
}

}  // namespace tally::sources_test
