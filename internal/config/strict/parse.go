package strict

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of one text, so that a malicious one costs no more than its size: the parser recurses once per level
// and keeps a path per node.
const (
	MaxTextBytes     = 3 << 20 // bytes
	maxTokens        = 600_000
	maxDepth         = 16
	maxKeyBytes      = 128 // bytes
	maxIndentColumns = 256 // columns
)

// parseTree returns the tree of the only document in text, or the position and reason of the failure.
func parseTree(text []byte) (root ast.Node, where textPos, reason, hint string) {
	defer func() {
		// The scanner is third-party code and must handle any text: its panic means that the text cannot be
		// parsed.
		if r := recover(); r != nil {
			root, where, reason, hint = nil, textPos{1, 1}, "the text is not well-formed YAML", "start from what `spillway config init` writes"
		}
	}()
	if where, reason, hint = checkFlowDepth(text); reason != "" {
		return nil, where, reason, hint
	}
	tokens := lexer.Tokenize(string(text))
	if where, reason, hint = checkDepth(tokens); reason != "" {
		return nil, where, reason, hint
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		where, reason, hint = describeSyntaxError(err)
		return nil, where, reason, hint
	}
	return onlyDocument(file)
}

func onlyDocument(file *ast.File) (ast.Node, textPos, string, string) {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if body != nil {
			return nil, nodePos(doc.Body), "a second document begins here", "keep one document per file: take out the ---"
		}
		body = doc.Body
	}
	if body == nil {
		return nil, textPos{1, 1}, "the text is empty", "start from what `spillway config init` writes"
	}
	return body, textPos{}, "", ""
}

// checkFlowDepth bounds the nesting of brackets before the scanner runs. It also counts brackets inside quotes,
// which no realistic text has in such numbers.
func checkFlowDepth(text []byte) (textPos, string, string) {
	depth, line, col := 0, 1, 0
	for _, c := range text {
		col++
		switch c {
		case '\n':
			line, col = line+1, 0
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > 4*maxDepth {
			return textPos{line, col}, fmt.Sprintf("lists and maps are nested more than %d deep", maxDepth), "flatten this part"
		}
	}
	return textPos{}, "", ""
}

// checkDepth bounds the tree that the parser would build.
func checkDepth(tokens token.Tokens) (textPos, string, string) {
	if len(tokens) > maxTokens {
		return tokenPos(tokens[maxTokens]), fmt.Sprintf("the text has more than %d words", maxTokens), "split it, or take out what repeats"
	}
	flow, line := 0, 0
	dashes := 0 // marks that may nest on this line or, inside brackets, in this item
	var block openLevels
	for i, tk := range tokens {
		indented := false
		if tk.Position.Line != line {
			line = tk.Position.Line
			indented = flow == 0 && tk.Position.Column > maxIndentColumns
			if flow == 0 {
				dashes = 0
			}
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow, dashes = flow+1, 0
		case token.SequenceEndType, token.MappingEndType:
			flow, dashes = max(flow-1, 0), 0
		case token.CollectEntryType:
			dashes = 0
		case token.SequenceEntryType, token.MappingKeyType:
			if dashes++; flow == 0 {
				block.enterLevel(2*tk.Position.Column + 1)
			}
		case token.AnchorType, token.TagType:
			dashes++
		case token.MappingValueType:
			dashes++
			if i > 0 && len(tokens[i-1].Value) > maxKeyBytes {
				return tokenPos(tokens[i-1]), fmt.Sprintf("a key is longer than %d bytes", maxKeyBytes), "keys are short names: is a quote missing?"
			}
			if i > 0 && flow == 0 {
				block.enterLevel(2 * tokens[i-1].Position.Column)
			}
		}
		if flow+len(block) > maxDepth || dashes > maxDepth || indented {
			return tokenPos(tk), fmt.Sprintf("lists and maps are nested more than %d deep", maxDepth), "flatten this part"
		}
	}
	return textPos{}, "", ""
}

// openLevels are the open block lists and maps, by the column of their items: a list may begin in the column of
// its key.
type openLevels []int

// enterLevel enters the level of an item that begins in that column.
func (l *openLevels) enterLevel(begin int) {
	n := len(*l)
	for n > 0 && (*l)[n-1] >= begin {
		n--
	}
	*l = append((*l)[:n], begin)
}

// syntaxHints maps the parser's most frequent messages to advice.
var syntaxHints = []struct{ says, hint string }{
	{"\t", "indent with spaces: YAML does not take tabs"},
	{"tab", "indent with spaces: YAML does not take tabs"},
	{"end character of double-quoted", "close the quote"},
	{"end character of single-quoted", "close the quote"},
	{"']' must be specified", "close the list with ]"},
	{"end token ']'", "close the list with ]"},
	{"'}'", "close the map with }"},
	{"not allowed in this context", "check the indentation of this line against the line above"},
	{"unexpected key name", "write key: value, with a space after the colon"},
	{"non-map value", "write key: value, with a space after the colon"},
	{"reserved character", "put the value in quotes"},
}

func describeSyntaxError(err error) (textPos, string, string) {
	var located interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &located) {
		return textPos{1, 1}, "the text is not well-formed YAML", ""
	}
	says := located.GetMessage()
	for _, h := range syntaxHints {
		if strings.Contains(says, h.says) {
			return tokenPos(located.GetToken()), "not well-formed YAML: " + replaceControls(says), h.hint
		}
	}
	return tokenPos(located.GetToken()), "not well-formed YAML: " + replaceControls(says), "check the indentation and the quotes of this line"
}

// replaceControls replaces characters that a terminal would not show by their names.
func replaceControls(says string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ReplaceAll(says, "'\t'", "tab"))
}
