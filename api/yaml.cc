// SPDX-License-Identifier: Apache-2.0

#include "api/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "api/check.h"
#include "api/scalar.h"
#include "api/text.h"

namespace ringmaster::api {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int64_t kMaxCost = 100'000;  // cost of the whole tree with expanded aliases; see CostOf
constexpr const char* kStringTag = "tag:yaml.org,2002:str";

Mark ToMark(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// A value costs one, long text more.
int64_t CostOf(const Node& node) {
  return 1 + static_cast<int64_t>(node.text.size() + (node.scalar.is_string()
                                                          ? node.scalar.get_ref<const std::string&>().size()
                                                          : 0)) /
                 64;
}

// Builds the tree from the parser's events. Unlike yaml-cpp's nodes, events keep positions and duplicate
// keys, and an alias cannot become a cycle, because an anchor is defined only when its value is complete.
// After Stop, events are ignored (yaml-cpp bounds its recursion).
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(Parsed& out) : out_(out) {}

  bool document_is_null() const { return document_.IsNull(); }
  Mark document_mark() const { return document_mark_; }
  Node TakeDocument() { return std::move(document_); }
  // Offset of the last scalar that is not plain.
  const std::optional<YAML::Mark>& last_quoted() const { return last_quoted_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    document_mark_ = ToMark(mark);
    document_ = Node();
    document_.mark = document_mark_;
    frames_.clear();
    anchors_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!out_.whole) return;
    if (ExpectsKey()) return BadKey(mark, "a key is missing");
    Node node;
    node.mark = ToMark(mark);
    Add(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!out_.whole) return;
    if (ExpectsKey()) return BadKey(mark, "a key must be plain text, not an alias");
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) return Stop(mark, "the alias contains itself");
    if (frames_.size() + it->second.depth > kMaxDepth) return StopDeep(mark);
    cost_ += it->second.cost;
    if (cost_ > kMaxCost) return Stop(mark, "the expanded aliases are too large");
    Node copy = it->second.node;
    copy.mark = ToMark(mark);
    Attach(std::move(copy), it->second.depth, it->second.cost);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!out_.whole) return;
    const bool plain = tag == "?";
    if (!plain) last_quoted_ = mark;
    if (!plain && tag != "!" && tag != kStringTag)
      Report(ToMark(mark), "tags such as " + tag + " are not supported");
    if (ExpectsKey()) return Key(ToMark(mark), plain, value);
    Node node;
    node.mark = ToMark(mark);
    node.scalar = value;
    if (plain) {
      PlainScalar resolved = ResolvePlain(value);
      if (resolved.refused.empty()) {
        if (!resolved.value.is_string()) node.text = value;
        node.scalar = std::move(resolved.value);
      } else {
        Report(node.mark, resolved.refused);
        node.reported = true;
      }
    }
    Add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Node::Kind::kObject);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

  void Stop(const YAML::Mark& mark, std::string message) { Stop(ToMark(mark), std::move(message)); }
  // Earlier problems may be consequences of this one, so only the reason to stop is reported.
  void Stop(Mark mark, std::string message) {
    if (!out_.whole) return;
    out_.problems.clear();
    Report(mark, std::move(message));
    out_.whole = false;
  }

 private:
  // A list or object that is not complete yet.
  struct Frame {
    Node node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::map<std::string, int> lines;  // line of each key so far
    std::set<std::string> merged;      // keys that only a merge (<<) has set so far
    bool is_key = false;               // it is in the place of a key: reported, and skipped
    bool has_key = false;
    bool drop = false;   // the key is invalid: its value is discarded
    bool merge = false;  // the key is <<
    std::string key;
    Mark key_mark;
    size_t depth = 1;  // levels in `node`
    int64_t cost = 1;
  };
  struct Anchored {
    Node node;
    size_t depth;
    int64_t cost;
  };

  bool ExpectsKey() const {
    return !frames_.empty() && frames_.back().node.kind == Node::Kind::kObject && !frames_.back().has_key;
  }

  // The anchor of the next value.
  std::string PathHere() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == Node::Kind::kList) {
        path += fmt::format("[{}]", frame.node.items.size());
      } else if (frame.has_key) {
        if (!path.empty()) path += '.';
        path += frame.key;
      }
    }
    return path;
  }

  void Report(Mark mark, std::string message) {
    if (out_.problems.size() < kMaxProblems) {
      out_.problems.push_back({PathHere(), std::move(message), mark.line, mark.column});
    }
  }
  void StopDeep(const YAML::Mark& mark) { Stop(mark, fmt::format("nested deeper than {}", kMaxDepth)); }

  void BadKey(const YAML::Mark& mark, const char* message) {
    Report(ToMark(mark), message);
    Frame& frame = frames_.back();
    frame.key.clear();
    frame.has_key = true;
    frame.drop = true;
  }

  void Key(Mark mark, bool plain, const std::string& key) {
    Frame& frame = frames_.back();
    frame.drop = false;
    frame.merge = plain && key == "<<";
    std::string text = key;
    if (plain && !frame.merge) {
      const PlainScalar resolved = ResolvePlain(key);
      if (!resolved.refused.empty()) {
        Report(mark, "key: " + resolved.refused);
        frame.drop = true;
      } else if (resolved.value.is_number_integer()) {
        text = DumpJson(resolved.value);  // as kubectl does
      } else if (!resolved.value.is_string()) {
        Report(mark, "key: plain " + key + " is not text: quote it");
        frame.drop = true;
      }
    }
    frame.key = std::move(text);
    frame.key_mark = mark;
    frame.has_key = true;
    const auto [first, is_new] = frame.lines.try_emplace(frame.key, mark.line);
    if (!is_new) {
      Report(mark, fmt::format("duplicate key; the first is at line {}", first->second));
      frame.drop = true;
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    if (!out_.whole) return;
    if (frames_.size() >= kMaxDepth) return StopDeep(mark);
    if (!tag.empty() && tag != "?" && tag != "!")
      Report(ToMark(mark), "tags such as " + tag + " are not supported");
    Frame frame;
    frame.is_key = ExpectsKey();
    if (frame.is_key) BadKey(mark, "a key must be plain text, not a list or an object");
    frame.node.kind = kind;
    frame.node.mark = ToMark(mark);
    frame.anchor = anchor;
    if (++cost_ > kMaxCost) return Stop(mark, "too many values");
    frames_.push_back(std::move(frame));
  }

  void Close() {
    if (!out_.whole) return;
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.anchor != YAML::NullAnchor) {
      anchors_.insert_or_assign(frame.anchor, Anchored{frame.node, frame.depth, frame.cost});
    }
    if (!frame.is_key) Attach(std::move(frame.node), frame.depth, frame.cost);
  }

  void Add(Node node, YAML::anchor_t anchor) {
    const int64_t cost = CostOf(node);
    cost_ += cost;
    if (cost_ > kMaxCost) return Stop(node.mark, "too many values");
    if (anchor != YAML::NullAnchor) anchors_.insert_or_assign(anchor, Anchored{node, 0, cost});
    Attach(std::move(node), 0, cost);
  }

  void Attach(Node node, size_t depth, int64_t cost) {
    if (frames_.empty()) {
      document_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    frame.depth = std::max(frame.depth, depth + 1);
    frame.cost += cost;
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(node));
      return;
    }
    frame.has_key = false;
    if (frame.merge && !frame.drop) {
      Merge(frame, std::move(node));
    } else if (!frame.drop && frame.merged.erase(frame.key) > 0) {
      Member& member = *std::find_if(frame.node.members.begin(), frame.node.members.end(),
                                     [&](const Member& other) { return other.key == frame.key; });
      member.mark = frame.key_mark;
      member.value = std::move(node);
    } else if (!frame.drop) {
      frame.node.members.push_back({std::move(frame.key), frame.key_mark, std::move(node)});
    }
    frame.drop = false;
    frame.merge = false;
  }

  // Adds the members of `node`, an object or a list of objects, to the object of the frame. Keys of the
  // object win, and of two objects in a list the first one. kubectl lets a merge replace the keys in front of
  // it, other readers do not.
  void Merge(Frame& frame, Node node) {
    std::vector<Node> sources;
    if (node.kind == Node::Kind::kList) {
      sources = std::move(node.items);
    } else {
      sources.push_back(std::move(node));
    }
    for (Node& source : sources) {
      if (source.kind != Node::Kind::kObject)
        return Report(frame.key_mark, "a merge (<<) takes an object, or a list of objects");
      for (Member& member : source.members) {
        if (const auto line = frame.lines.find(member.key); line != frame.lines.end()) {
          return Report(
              frame.key_mark,
              fmt::format("readers of YAML disagree whether this merge replaces {}, which is in line {}: "
                          "write << in front of the other keys",
                          member.key, line->second));
        }
        if (frame.merged.insert(member.key).second) frame.node.members.push_back(std::move(member));
      }
    }
  }

  Parsed& out_;
  Node document_;
  Mark document_mark_;
  std::optional<YAML::Mark> last_quoted_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  int64_t cost_ = 0;
};

// yaml-cpp accepts the end of the text at the start of a line as the end of a quoted scalar.
bool IsClosed(std::string_view text, size_t begin) {
  if (begin >= text.size()) return true;
  const char quote = text[begin];
  if (quote != '"' && quote != '\'') return true;  // a block scalar
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) return true;
      ++i;  // '' is a quote
    }
  }
  return false;
}

struct Document {
  Parsed parsed;
  Mark mark;
};

Document Failed(std::string message, Mark mark) {
  Document document;
  document.parsed.problems.push_back({"", std::move(message), mark.line, mark.column});
  document.parsed.whole = false;
  return document;
}

// Returns up to `most` documents. Skips empty ones. The last one is not whole when the text ends there.
std::vector<Document> Documents(std::string_view text, size_t most) {
  std::vector<Document> documents;
  const auto fail = [&](std::string message, Mark mark) {
    documents.push_back(Failed(std::move(message), mark));
    return documents;
  };
  if (text.size() > kMaxBytes) return fail(fmt::format("larger than {} bytes", kMaxBytes), {});
  text = WithoutByteOrderMark(text);
  if (const Mark bad = FindBadByte(text); bad.line != 0)
    return fail("not UTF-8 text, or a control character", bad);
  std::optional<YAML::Mark> quoted;
  Document next;
  Mark before;
  // After a stop, the error of the parser is a consequence.
  const auto stop = [&](std::string message, Mark mark) {
    if (next.parsed.whole) return fail(std::move(message), mark);
    documents.push_back(std::move(next));
    return documents;
  };
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (documents.size() < most) {
      next = Document();
      Builder builder(next.parsed);
      if (!parser.HandleNextDocument(builder)) break;
      if (builder.last_quoted()) quoted = builder.last_quoted();
      // The parser finds empty documents without end before a token that begins none.
      if (next.parsed.whole && builder.document_is_null() && builder.document_mark() == before)
        return fail("not valid YAML: no value begins here", before);
      before = builder.document_mark();
      if (next.parsed.whole && builder.document_is_null() && next.parsed.problems.empty()) continue;
      next.parsed.root = builder.TakeDocument();
      next.mark = builder.document_mark();
      documents.push_back(std::move(next));
      if (!documents.back().parsed.whole) return documents;
    }
  } catch (const YAML::Exception& e) {
    return stop("not valid YAML: " + e.msg, e.mark.is_null() ? Mark{} : ToMark(e.mark));
  } catch (const std::exception& e) {
    return stop(std::string("not valid YAML: ") + e.what(), {});
  }
  if (quoted && !IsClosed(text, static_cast<size_t>(quoted->pos)))
    return fail("not valid YAML: the quote is never closed", ToMark(*quoted));
  return documents;
}

}  // namespace

Parsed ParseYaml(std::string_view text) {
  std::vector<Document> documents = Documents(text, 2);
  if (documents.empty()) return Failed("there is no document", {}).parsed;
  Document& last = documents.back();
  if (!last.parsed.whole || documents.size() == 1) return std::move(last.parsed);
  return Failed("several documents: give one per file", last.mark).parsed;
}

std::vector<Parsed> ParseYamlDocuments(std::string_view text) {
  std::vector<Parsed> all;
  for (Document& document : Documents(text, std::numeric_limits<size_t>::max()))
    all.push_back(std::move(document.parsed));
  return all;
}

}  // namespace ringmaster::api
