#include "core/io/json.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/utf8.hpp"
#include "tests/core/io_files.hpp"

namespace tally::io_json_test {

JsonValue parse(std::string_view text, const JsonLimits& limits = {}) { return parse_json(text, limits, "a.json"); }
std::string text_after_round_trip(std::string_view text, int indent = 0) { return write_json(parse(text), indent); }

TEST(JsonParse, ReadsEveryKind) {
  const JsonValue value = parse(
      " {\"a\": null, \"b\": [true, false],\t\"c\": -12, \"d\": 2.5e-3,\r\n \"e\": \"x\", \"f\": {}, \"g\": []} ");
  EXPECT_TRUE(value.at("a").is_null());
  EXPECT_TRUE(value.elements("b").front().boolean());
  EXPECT_FALSE(value.elements("b").back().boolean());
  EXPECT_EQ(value.integer("c"), -12);
  EXPECT_EQ(value.real("d"), 2.5e-3);
  EXPECT_EQ(value.string("e"), "x");
  EXPECT_TRUE(value.members("f").empty());
  EXPECT_TRUE(value.elements("g").empty());
  EXPECT_EQ(parse("17").integer(), 17);
  EXPECT_EQ(parse("\"x\"").string(), "x");
}

TEST(JsonParse, KeepsTheOrderOfMembers) {
  EXPECT_EQ(text_after_round_trip("{\"z\":1,\"a\":{\"y\":2,\"b\":3}}"), "{\"z\":1,\"a\":{\"y\":2,\"b\":3}}");
}

TEST(JsonParse, DecodesEscapes) {
  EXPECT_EQ(parse(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parse(R"("a\u0041\u00e9\u20AC\ud83d\ude00z")").string(), "aA\u00e9\u20ac\U0001f600z");
  EXPECT_EQ(parse(R"("\u0000")").string(), std::string(1, '\0'));
  EXPECT_EQ(parse("\"\u00e9\u20ac\U0001f600\x7f\"").string(), "\u00e9\u20ac\U0001f600\x7f");
  EXPECT_EQ(parse(R"({"\u0061": 1})").integer("a"), 1);
}

TEST(JsonParse, ReadsNumbers) {
  EXPECT_EQ(parse("9223372036854775807").integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808").integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse("-0").integer(), 0);
  EXPECT_TRUE(std::signbit(parse("-0.0").real()));
  EXPECT_TRUE(parse("1.0").is_real());
  EXPECT_TRUE(parse("1e3").is_real());
  EXPECT_EQ(parse("1e3").real(), 1000.0);
  EXPECT_EQ(parse("1E+2").real(), 100.0);
  EXPECT_EQ(parse("0.1e-1").real(), 0.01);
  EXPECT_EQ(parse("1.7976931348623157e308").real(), std::numeric_limits<double>::max());
  EXPECT_EQ(parse("5e-324").real(), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(parse("7").real(), 7.0);  // an integer is a number too
}

struct Refusal {
  std::string_view text;
  std::string_view message;
};

void expect_refused(std::string_view text, std::string_view message, const JsonLimits& limits = {}) {
  SCOPED_TRACE(text.substr(0, 100));
  EXPECT_ERROR(parse(text, limits), message);
}

TEST(JsonParse, RefusesWhatIsNotJson) {
  // The grammar is the library's; these show that its messages arrive with the right byte.
  const Refusal refusals[] = {
      {"", "byte 0: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal"},
      {"  ", "byte 2: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal"},
      {"[1 2]", "byte 4: syntax error while parsing array - unexpected number literal; expected ']'"},
      {"[1,]", "byte 3: syntax error while parsing value - unexpected ']'; expected '[', '{', or a literal"},
      {"{\"a\":1,}", "byte 7: syntax error while parsing object key - unexpected '}'; expected string literal"},
      {"{\"a\"}", "byte 4: syntax error while parsing object separator - unexpected '}'; expected ':'"},
      {"{'a':1}", "byte 1: syntax error while parsing object key - invalid literal"},
      {"1 2", "byte 3: syntax error while parsing value - unexpected number literal; expected end of input"},
      {"[1] // comment", "byte 4: syntax error while parsing value - invalid literal"},
      {"nul", "byte 3: syntax error while parsing value - invalid literal"},
      {"NaN", "byte 0: syntax error while parsing value - invalid literal"},
      {"-Infinity", "byte 1: syntax error while parsing value - invalid number; expected digit after '-'"},
      {"01", "byte 2: syntax error while parsing value - unexpected number literal; expected end of input"},
      {"1.", "byte 2: syntax error while parsing value - invalid number; expected digit after '.'"},
      {"1e", "byte 2: syntax error while parsing value - invalid number; expected '+', '-', or digit after exponent"},
      {"\"abc", "byte 4: syntax error while parsing value - invalid string: missing closing quote"},
      {"\"\\x41\"", "byte 2: syntax error while parsing value - invalid string: forbidden character after backslash"},
      {"\"\\u12", "byte 5: syntax error while parsing value - invalid string: '\\u' must be followed by 4 hex digits"},
      {"\u00a01", "byte 0: syntax error while parsing value - invalid literal"},
  };
  for (const auto& [text, message] : refusals) expect_refused(text, message);
}

TEST(JsonParse, RefusesWhatIsNotUtf8) {
  expect_refused("\xef\xbb\xbf{}", "byte 0: a byte order mark");
  expect_refused("{\"a\": \"\xff\"}", "byte 7: not UTF-8");
  expect_refused("[\"\xed\xa0\x80\"]", "byte 2: not UTF-8");  // a surrogate, encoded
  expect_refused("[\"\xc0\xaf\"]", "byte 2: not UTF-8");      // overlong
  expect_refused("[1] \xfe", "byte 4: not UTF-8");
  expect_refused(std::string_view("[1]\0", 4), "byte 3: a zero byte");
  expect_refused(std::string_view("[\"a\0b\"]", 7), "byte 3: a zero byte");
  expect_refused(std::string_view("\0", 1), "byte 0: a zero byte");
  expect_refused(std::string_view("[\0", 2), "byte 1: a zero byte");
  expect_refused(std::string_view("{\0}", 3), "byte 1: a zero byte");
}

TEST(JsonParse, RefusesLoneSurrogates) {
  for (const std::string_view text :
       {R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"("\ud800\n")", R"("\ud800\ud800")", R"("\ud800\u0041")",
        R"("\udfff\ud800")", R"({"\udbff": 1})"}) {
    expect_refused(text, "invalid string: surrogate");
  }
}

TEST(JsonParse, RefusesNamesThatStandTwice) {
  expect_refused(R"({"a":1,"b":2,"a":3})", "byte 13: the name 'a' stands here again; first at byte 1");
  expect_refused(R"({"x":{"a":1,"\u0061":2}})", "byte 12: the name 'a' stands here again; first at byte 6");
  expect_refused(R"([{"":1,"":2}])", "byte 7: the name ''");
  expect_refused(R"([[[{"a\n":1,"a\n":2}]]])", "the name 'a\\n'");
  EXPECT_EQ(text_after_round_trip(R"({"a":{"a":1},"b":{"a":[{"a":2},{"a":3}]}})"),
            R"({"a":{"a":1},"b":{"a":[{"a":2},{"a":3}]}})");
}

TEST(JsonParse, RefusesNumbersThatDoNotFit) {
  expect_refused("9223372036854775808", "byte 0: the integer 9223372036854775808 does not fit 64 bits");
  expect_refused("18446744073709551616", "does not fit 64 bits");
  expect_refused("-9223372036854775809", "does not fit 64 bits");
  expect_refused("[" + std::string(100000, '9') + "]", "... (100000 bytes) does not fit 64 bits");
  expect_refused("{\"lr\": 1e999}", "byte 7: the number 1e999 does not fit a double");
  expect_refused("-1e999", "does not fit a double");
  expect_refused("1e-999", "does not fit a double");
  expect_refused("1e99999999999999999999", "does not fit a double");
}

TEST(JsonParse, IntegersOnly) {
  const JsonLimits limits{.integers_only = true};
  EXPECT_EQ(parse("[0,-5]", limits).elements().size(), 2U);
  for (const std::string_view text : {"1e3", "1.0", "-0.0", "1E0", "0.5", "1e999"}) {
    expect_refused(text, formatted("the number {} is no integer", text), limits);
  }
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonParse, Depth) {
  const JsonLimits limits{.max_depth = 4};
  EXPECT_TRUE(parse(nested(4), limits).is_array());
  EXPECT_TRUE(parse(R"({"a":{"a":{"a":{"a":1}}}})", limits).is_object());
  expect_refused(nested(5), "byte 4: nested deeper than 4", limits);
  expect_refused(R"({"a":{"a":{"a":{"a":{}}}}})", "nested deeper than 4", limits);
  expect_refused(nested(100000), "byte 64: nested deeper than 64");
  expect_refused(std::string(10000000, '['), "byte 64: nested deeper than 64");
  EXPECT_TRUE(parse(formatted("[{},{}]", nested(3), nested(3)), limits).is_array());  // the depth goes down again
}

TEST(JsonParse, NumberOfValues) {
  const JsonLimits limits{.max_values = 3};
  EXPECT_TRUE(parse(R"({"a":1,"b":2})", limits).is_object());
  expect_refused(R"({"a":1,"b":2,"c":3})", "more than 3 values", limits);
  expect_refused("[[1,[2]]]", "more than 3 values", limits);
}

TEST(JsonParse, MembersOneByOne) {
  std::string seen;
  const auto parse_members = [&](std::string_view text, const JsonLimits& limits) {
    seen.clear();
    parse_json_members(text, limits, "a.json", 8, [&](JsonMember& member) {
      check(!member.value.is_null(), "here", "is null");
      seen += member.name + write_json(std::move(member.value)) + ";";
    });
  };
  parse_members(R"({"a":[1,{"b":2}],"c":{"d":"e"},"a":3})", {.max_values = 4});
  EXPECT_EQ(seen, R"(a[1,{"b":2}];c{"d":"e"};a3;)");
  parse_members("{}", {});
  EXPECT_EQ(seen, "");
  EXPECT_ERROR(parse_members(R"({"a":1,"b":null})", {}), "a.json: byte 15: 'b': [here] is null");
  EXPECT_ERROR(parse_members(R"({"a":1,"b":[1,2,3,4]})", {.max_values = 4}), "more than 4 values");
  EXPECT_ERROR(parse_members(R"({"a":{"b":1,"b":2}})", {}),
               "byte 20: the name 'b' stands here again; first at byte 14");
  for (const std::string_view text : {"[]", "null", "3", "\"a\""}) {
    EXPECT_ERROR(parse_members(text, {}), "a.json: byte 8: expected an object");
  }
}

TEST(JsonParse, NamesTheSourceSafely) {
  EXPECT_ERROR(parse_json("x", {}, "a\n\x1b.json"), "[json] a\\n\\x1b.json: byte 0");
}

TEST(JsonFile, IsLimited) {
  const TemporaryFolder folder;
  const std::string path = folder.file("config.json", "{\"a\": 1}");
  EXPECT_EQ(read_json(path).integer("a"), 1);
  EXPECT_ERROR(read_json(path, {}, 7), "config.json: has 8 bytes; at most 7");
  EXPECT_ERROR(read_json(folder.file("b.json", "{")), "b.json: byte 1");
  EXPECT_ERROR(read_json(folder.path()), "is a folder");
}

TEST(JsonWrite, CompactAndIndented) {
  const JsonValue value = JsonValue::object({{"step", 5},
                                             {"loss", 0.25},
                                             {"ok", true},
                                             {"name", "x"},
                                             {"none", {}},
                                             {"list", JsonValue::Array{1, 2.0, "three"}},
                                             {"empty", JsonValue::object()},
                                             {"rows", JsonValue::Array{JsonValue::array(), JsonValue::Array{1}}}});
  EXPECT_EQ(write_json(value), R"({"step":5,"loss":0.25,"ok":true,"name":"x","none":null,"list":[1,2.0,"three"],)"
                               R"("empty":{},"rows":[[],[1]]})");
  EXPECT_EQ(write_json(value, 2), R"({
  "step": 5,
  "loss": 0.25,
  "ok": true,
  "name": "x",
  "none": null,
  "list": [1, 2.0, "three"],
  "empty": {},
  "rows": [
    [],
    [1]
  ]
})");
  EXPECT_EQ(parse(write_json(value)), value);
  EXPECT_EQ(parse(write_json(value, 4)), value);
}

TEST(JsonWrite, DoublesComeBackToTheBit) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const JsonValue back = parse(write_json(JsonValue(value)));
    ASSERT_TRUE(back.is_real());
    ASSERT_EQ(std::bit_cast<std::uint64_t>(back.real()), std::bit_cast<std::uint64_t>(value));
  }
  EXPECT_EQ(write_json(1.0), "1.0");
  EXPECT_EQ(write_json(-0.0), "-0.0");
  EXPECT_EQ(write_json(0.125), "0.125");
  EXPECT_EQ(write_json(1e300), "1e+300");
}

TEST(JsonWrite, StringsComeBack) {
  std::string all;
  for (char32_t code = 0; code < 0x250; ++code) append_utf8(all, code);
  EXPECT_EQ(parse(write_json(all)).string(), all);
  EXPECT_EQ(write_json("a\"b\\c\n\x1f/\x7f\u00e9"), "\"a\\\"b\\\\c\\u000a\\u001f/\x7f\u00e9\"");
}

TEST(JsonWrite, WhatIsNoFiniteNumberIsNull) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(write_json(JsonValue::object({{"step", 1}, {"loss", value}})), R"({"step":1,"loss":null})");
  }
}

TEST(JsonWrite, RefusesWhatJsonCannotHold) {
  EXPECT_ERROR(write_json(JsonValue::object({{"name", "\xff"}})), "the text '\\xff' in 'name' is not UTF-8");
  EXPECT_ERROR(JsonValue(std::uint64_t{1} << 63), "9223372036854775808 does not fit");
}

TEST(JsonValue, ErrorsNameTheKey) {
  const JsonValue value = parse(R"({"width": "wide", "lr": [], "model": {"heads": 1.5}, "n": null})");
  EXPECT_ERROR(value.integer("absent"), "[json] 'absent' is missing");
  EXPECT_ERROR(value.at("a\nb"), "'a\\nb' is missing");
  EXPECT_ERROR(value.integer("width"), "'width' must be an integer, but is a string");
  EXPECT_ERROR(value.real("lr"), "'lr' must be a number, but is an array");
  EXPECT_ERROR(value.at("model").integer("heads"), "'heads' must be an integer, but is a real number");
  EXPECT_ERROR(value.boolean("n"), "'n' must be a boolean, but is null");
  EXPECT_ERROR(value.string("lr"), "'lr' must be a string, but is an array");
  EXPECT_ERROR(value.elements("model"), "'model' must be an array, but is an object");
  EXPECT_ERROR(value.members("lr"), "'lr' must be an object, but is an array");
  EXPECT_ERROR(value.integer(), "expected an integer, found an object");
  EXPECT_ERROR(JsonValue(1).at("a"), "expected an object, found an integer");
}

TEST(JsonValue, Changes) {
  JsonValue value = JsonValue::object();
  value.set("b", 1).set("a", "x").set("b", 2.5);
  EXPECT_EQ(write_json(value), R"({"b":2.5,"a":"x"})");
  EXPECT_TRUE(value.remove("b"));
  EXPECT_FALSE(value.remove("b"));
  EXPECT_FALSE(value.contains("b"));
  value.set("list", JsonValue::array());
  EXPECT_EQ(write_json(value), R"({"a":"x","list":[]})");
  JsonValue list = JsonValue::array();
  list.push(1).push(JsonValue::object({{"c", false}}));
  EXPECT_EQ(write_json(list), R"([1,{"c":false}])");
  EXPECT_ERROR(list.set("a", 1), "cannot set 'a' in an array");
  EXPECT_ERROR(value.push(1), "cannot append to an object");
}

TEST(JsonValue, Equality) {
  EXPECT_EQ(parse("[1,{\"a\":2.0}]"), parse(" [ 1 , {\"a\" : 2.00} ] "));
  EXPECT_NE(parse("1"), parse("1.0"));
  EXPECT_NE(parse("{\"a\":1}"), parse("{\"a\":2}"));
  EXPECT_NE(parse("{\"a\":1}"), parse("{\"b\":1}"));
  EXPECT_NE(parse("\"1\""), parse("1"));
}

}  // namespace tally::io_json_test
