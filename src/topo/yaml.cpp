#include "topo/yaml.hpp"

#include <algorithm>

#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr int kMaxDepth = 64;

struct Line {
  int number;
  std::size_t indent;
  std::string_view text;  // without indentation, comment and trailing blanks; not empty
};

// Where a comment begins: a # at the start or after a blank, outside quotes.
std::size_t comment_at(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool starts =
        i == 0 || std::string_view(" \t[{,:").find(text[i - 1]) != std::string_view::npos;
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if ((c == '"' || c == '\'') && starts) {
      quote = c;
    } else if (c == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return i;
    }
  }
  return text.size();
}

// "key: value" or "key:"; npos if it is neither.
std::size_t key_end(std::string_view text) {
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    const std::size_t close = text.find(text[0], 1);
    if (close == std::string_view::npos) return std::string_view::npos;
    const bool colon = close + 1 < text.size() && text[close + 1] == ':';
    return colon ? close + 1 : std::string_view::npos;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return i;
  }
  return std::string_view::npos;
}

std::string unquoted(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0]) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

bool is_item(std::string_view text) { return text == "-" || starts_with(text, "- "); }

Status error_at(int line, const std::string& what) {
  return invalid_argument("line " + std::to_string(line) + ": " + what);
}

// Flow style: [a, {b: c}], on one line.
class Flow {
 public:
  Flow(std::string_view text, int line) : text_(text), line_(line) {}

  Result<Yaml> parse() {
    TR_ASSIGN_OR_RETURN(Yaml value, parse_value(0));
    skip();
    if (at_ != text_.size()) return error_at(line_, "something follows after a closing bracket");
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<Yaml> parse_value(int depth) {
    if (depth > kMaxDepth) return error_at(line_, "too deeply nested");
    if (take('[')) return parse_items(depth);
    if (take('{')) return parse_fields(depth);
    Yaml value;
    value.kind = Yaml::Kind::kScalar;
    value.scalar = word(",]}");
    return value;
  }

  Result<Yaml> parse_items(int depth) {
    Yaml value;
    value.kind = Yaml::Kind::kSequence;
    while (!take(']')) {
      if (at_ >= text_.size()) return error_at(line_, "a '[' without its ']' on the same line");
      TR_ASSIGN_OR_RETURN(Yaml item, parse_value(depth + 1));
      value.items.push_back(std::move(item));
      if (take(']')) break;
      if (!take(',')) return error_at(line_, "no ',' or ']' where one is needed");
    }
    return value;
  }

  Result<Yaml> parse_fields(int depth) {
    Yaml value;
    value.kind = Yaml::Kind::kMap;
    while (!take('}')) {
      if (at_ >= text_.size()) return error_at(line_, "a '{' without its '}' on the same line");
      std::string key = word(":,}");
      if (!take(':')) return error_at(line_, "no ':' after '" + key + "'");
      TR_ASSIGN_OR_RETURN(Yaml field, parse_value(depth + 1));
      value.fields.emplace_back(std::move(key), std::move(field));
      if (take('}')) break;
      if (!take(',')) return error_at(line_, "no ',' or '}' where one is needed");
    }
    return value;
  }

  std::string word(std::string_view ends) {
    skip();
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const std::size_t close = std::min(text_.find(text_[at_], at_ + 1), text_.size());
      const std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
      at_ = std::min(close + 1, text_.size());
      return std::string(inside);
    }
    // A bracket inside a plain word belongs to it: node[1-4]
    const std::size_t start = at_;
    int open = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (open == 0 && ends.find(c) != std::string_view::npos) break;
      if (c == '[') ++open;
      if (c == ']') --open;
    }
    return std::string(trim(text_.substr(start, at_ - start)));
  }

  std::string_view text_;
  int line_;
  std::size_t at_ = 0;
};

class Block {
 public:
  Result<Yaml> parse(std::string_view text) {
    int number = 0;
    for (std::string_view line : split_lines(text)) {
      ++number;
      line = line.substr(0, comment_at(line));
      const std::size_t indent = line.find_first_not_of(' ');
      const std::string_view body = trim(line);
      if (body.empty() || body == "---") continue;
      if (body == "...") break;
      if (line[indent] == '\t') return error_at(number, "indented by a tab; YAML wants blanks");
      lines_.push_back({number, indent, body});
    }
    TR_ASSIGN_OR_RETURN(Yaml root, parse_node(0, 0));
    if (at_ < lines_.size())
      return error_at(lines_[at_].number, "indented less than what it is in");
    return root;
  }

 private:
  // The map, sequence or scalar that begins at the current line, if it is indented so far.
  Result<Yaml> parse_node(std::size_t indent, int depth) {
    if (depth > kMaxDepth) return error_at(lines_[at_].number, "too deeply nested");
    if (at_ >= lines_.size() || lines_[at_].indent < indent) return Yaml();
    const std::size_t own = lines_[at_].indent;
    if (is_item(lines_[at_].text)) return parse_sequence(own, depth);
    if (key_end(lines_[at_].text) != std::string_view::npos) return parse_map(own, depth);
    const Line& line = lines_[at_++];
    return parse_scalar(line.text, line.number);
  }

  Result<Yaml> parse_sequence(std::size_t indent, int depth) {
    Yaml value;
    value.kind = Yaml::Kind::kSequence;
    while (at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text)) {
      // What follows the dash is a node of its own, as far in as it stands.
      Line& line = lines_[at_];
      std::string_view rest = line.text.substr(1);
      const std::size_t blanks = std::min(rest.find_first_not_of(' '), rest.size());
      rest.remove_prefix(blanks);
      if (rest.empty()) {
        ++at_;
        TR_ASSIGN_OR_RETURN(Yaml item, parse_node(indent + 1, depth + 1));
        value.items.push_back(std::move(item));
        continue;
      }
      line.indent += 1 + blanks;
      line.text = rest;
      TR_ASSIGN_OR_RETURN(Yaml item, parse_node(line.indent, depth + 1));
      value.items.push_back(std::move(item));
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) {
      return error_at(lines_[at_].number, "indented more than the items before it");
    }
    return value;
  }

  Result<Yaml> parse_map(std::size_t indent, int depth) {
    Yaml value;
    value.kind = Yaml::Kind::kMap;
    while (at_ < lines_.size() && lines_[at_].indent == indent && !is_item(lines_[at_].text)) {
      const Line line = lines_[at_];
      const std::size_t colon = key_end(line.text);
      if (colon == std::string_view::npos) {
        return error_at(line.number,
                        "'" + std::string(line.text.substr(0, 40)) + "' is no 'key: value'");
      }
      ++at_;
      std::string key = unquoted(line.text.substr(0, colon));
      const std::string_view rest = trim(line.text.substr(colon + 1));
      if (!rest.empty()) {
        TR_ASSIGN_OR_RETURN(Yaml field, parse_scalar(rest, line.number));
        value.fields.emplace_back(std::move(key), std::move(field));
        continue;
      }
      // A sequence may stand as far out as its key.
      const bool sequence =
          at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text);
      TR_ASSIGN_OR_RETURN(Yaml field, parse_node(sequence ? indent : indent + 1, depth + 1));
      value.fields.emplace_back(std::move(key), std::move(field));
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) {
      return error_at(lines_[at_].number, "indented more than the keys before it");
    }
    return value;
  }

  static Result<Yaml> parse_scalar(std::string_view text, int line) {
    if (text[0] == '[' || text[0] == '{') return Flow(text, line).parse();
    if (std::string_view("&*!|>").find(text[0]) != std::string_view::npos) {
      return error_at(line, "anchors, tags and block scalars ('" + std::string(1, text[0]) +
                                "') are not read here");
    }
    Yaml value;
    value.kind = Yaml::Kind::kScalar;
    value.scalar = unquoted(text);
    return value;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

const Yaml* Yaml::find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string Yaml::text(std::string_view key) const {
  const Yaml* value = find(key);
  return value == nullptr ? "" : value->scalar;
}

std::vector<std::string> Yaml::texts(std::string_view key) const {
  std::vector<std::string> out;
  const Yaml* value = find(key);
  if (value == nullptr) return out;
  if (value->kind == Kind::kScalar) out.push_back(value->scalar);
  for (const Yaml& item : value->items) {
    if (item.kind == Kind::kScalar) out.push_back(item.scalar);
  }
  return out;
}

Result<Yaml> parse_yaml(std::string_view text) { return Block().parse(text); }

}  // namespace treering::topo
