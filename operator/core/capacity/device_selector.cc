// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/device_selector.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace ringmaster::core {
namespace {

constexpr int kMaxDepth = 64;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

struct DeviceSelector::Node {
  enum class Kind : uint8_t {
    kValue,
    kDriver,
    kAttribute,
    kNot,
    kAnd,
    kOr,
    kEqual,
    kUnequal,
    kLess,
    kAtMost
  };
  Kind kind = Kind::kValue;
  DeviceValue value;      // of kValue
  std::string attribute;  // DOMAIN/NAME, of kAttribute
  std::shared_ptr<const Node> left;
  std::shared_ptr<const Node> right;
};

// By recursive descent. Every function returns null for what is not evaluated, and so do its callers.
class DeviceSelector::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  using Tree = std::shared_ptr<const Node>;

  Tree Whole() {
    Tree tree = Or();
    Skip();
    return text_.empty() ? tree : nullptr;
  }

 private:
  Tree Or() {
    Tree tree = And();
    while (tree && Take("||")) tree = Join(Node::Kind::kOr, std::move(tree), And());
    return tree;
  }
  Tree And() {
    Tree tree = Relation();
    while (tree && Take("&&")) tree = Join(Node::Kind::kAnd, std::move(tree), Relation());
    return tree;
  }
  Tree Relation() {
    Tree left = Unary();
    if (!left) return nullptr;
    if (Take("==")) return Join(Node::Kind::kEqual, std::move(left), Unary());
    if (Take("!=")) return Join(Node::Kind::kUnequal, std::move(left), Unary());
    if (Take("<=")) return Join(Node::Kind::kAtMost, std::move(left), Unary());
    if (Take(">=")) return Join(Node::Kind::kAtMost, Unary(), std::move(left));
    if (Take("<")) return Join(Node::Kind::kLess, std::move(left), Unary());
    if (Take(">")) return Join(Node::Kind::kLess, Unary(), std::move(left));
    return left;
  }
  Tree Unary() {
    if (++depth_ > kMaxDepth) return nullptr;
    Tree tree = nullptr;
    Skip();
    if (text_.starts_with("!") && !text_.starts_with("!=")) {
      Take("!");
      if (Tree inner = Unary()) tree = Make({Node::Kind::kNot, {}, {}, std::move(inner), nullptr});
    } else if (Take("(")) {
      tree = Or();
      if (!Take(")")) tree = nullptr;
    } else {
      tree = Operand();
    }
    --depth_;
    return tree;
  }
  Tree Operand() {
    Skip();
    if (text_.empty()) return nullptr;
    if (text_.front() == '"' || text_.front() == '\'') {
      auto text = Text();
      return text ? Make({Node::Kind::kValue, *std::move(text), {}, nullptr, nullptr}) : nullptr;
    }
    if (IsDigit(text_.front()) || text_.front() == '-') return Number();
    const std::string name = Name();
    if (name == "true" || name == "false")
      return Make({Node::Kind::kValue, name == "true", {}, nullptr, nullptr});
    if (name != "device" || !Take(".")) return nullptr;
    const std::string member = Name();
    if (member == "driver") return Member({Node::Kind::kDriver, {}, {}, nullptr, nullptr});
    if (member != "attributes" || !Take("[")) return nullptr;
    const auto domain = Text();
    if (!domain || !Take("]")) return nullptr;
    std::string attribute;
    if (Take(".")) {
      attribute = Name();
    } else if (Take("[")) {
      attribute = Text().value_or("");
      if (!Take("]")) return nullptr;
    }
    if (attribute.empty()) return nullptr;
    return Member({Node::Kind::kAttribute, {}, *domain + "/" + attribute, nullptr, nullptr});
  }
  // What follows a member would be a function or a part of it.
  Tree Member(Node node) {
    Skip();
    if (text_.starts_with(".") || text_.starts_with("[") || text_.starts_with("(")) return nullptr;
    return Make(std::move(node));
  }
  Tree Number() {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), number);
    if (error != std::errc()) return nullptr;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    if (!text_.empty() && (IsLetter(text_.front()) || text_.front() == '.')) return nullptr;  // 1u, 0x1, 1.5
    return Make({Node::Kind::kValue, number, {}, nullptr, nullptr});
  }
  std::optional<std::string> Text() {
    Skip();
    if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) return std::nullopt;
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    const bool plain = text.find_first_of("\\\n\r") == std::string::npos;
    return plain ? std::optional(std::move(text)) : std::nullopt;
  }
  std::string Name() {
    Skip();
    size_t end = 0;
    while (end < text_.size() && (IsLetter(text_[end]) || (end > 0 && IsDigit(text_[end])))) ++end;
    std::string name(text_.substr(0, end));
    text_.remove_prefix(end);
    return name;
  }
  void Skip() {
    const size_t begin = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(begin == std::string_view::npos ? text_.size() : begin);
  }
  bool Take(std::string_view token) {
    Skip();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  static Tree Make(Node node) { return std::make_shared<const Node>(std::move(node)); }
  static Tree Join(Node::Kind kind, Tree left, Tree right) {
    if (!left || !right) return nullptr;
    return Make({kind, {}, {}, std::move(left), std::move(right)});
  }

  std::string_view text_;
  int depth_ = 0;
};

std::optional<DeviceSelector> DeviceSelector::Parse(std::string_view expression) {
  DeviceSelector selector;
  selector.root_ = Parser(expression).Whole();
  return selector.root_ ? std::optional(std::move(selector)) : std::nullopt;
}

DeviceSelector::Result DeviceSelector::Evaluate(const Node& node, const std::string& driver,
                                                const Device& device) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::kValue:
      return node.value;
    case Kind::kDriver:
      return driver;
    case Kind::kAttribute: {
      const auto found =
          std::find_if(device.attributes.begin(), device.attributes.end(),
                       [&](const auto& attribute) { return attribute->name == node.attribute; });
      return found == device.attributes.end() ? Result() : (*found)->value;
    }
    default:
      break;
  }
  const Result left = Evaluate(*node.left, driver, device);
  if (node.kind == Kind::kNot) {
    const bool* truth = left ? std::get_if<bool>(&*left) : nullptr;
    return truth == nullptr ? Result() : !*truth;
  }
  const Result right = Evaluate(*node.right, driver, device);
  if (node.kind == Kind::kAnd || node.kind == Kind::kOr) {
    const DeviceValue decides = node.kind == Kind::kOr;
    if (left == decides || right == decides) return decides;
    const bool known =
        left && right && std::holds_alternative<bool>(*left) && std::holds_alternative<bool>(*right);
    return known ? Result(node.kind == Kind::kAnd) : Result();
  }
  if (!left || !right) return std::nullopt;
  if (node.kind == Kind::kEqual) return *left == *right;
  if (node.kind == Kind::kUnequal) return *left != *right;
  if (left->index() != right->index()) return std::nullopt;
  return node.kind == Kind::kLess ? *left < *right : *left <= *right;
}

bool DeviceSelector::Selects(const std::string& driver, const Device& device) const {
  return Evaluate(*root_, driver, device) == DeviceValue(true);
}

}  // namespace ringmaster::core
