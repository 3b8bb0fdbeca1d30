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

// Bounds on one text. They keep a hostile page from costing more than it says: the parser recurses once per level and
// keeps a path per node.
const (
	MaxText   = 3 << 20 // bytes
	maxTokens = 600_000
	maxDepth  = 16
	maxKey    = 128 // bytes
	maxIndent = 256 // columns
)

// parse returns the tree of the only document in text, or where and why there is none.
func parse(text []byte) (root ast.Node, where spot, reason, hint string) {
	defer func() {
		// The scanner is somebody else's and meets any text at all: its panic is a text that cannot be read.
		if r := recover(); r != nil {
			root, where, reason, hint = nil, spot{1, 1}, "the text is not well-formed YAML", "start from what `spillway config init` writes"
		}
	}()
	if where, reason, hint = tooMuchFlow(text); reason != "" {
		return nil, where, reason, hint
	}
	tokens := lexer.Tokenize(string(text))
	if where, reason, hint = tooDeep(tokens); reason != "" {
		return nil, where, reason, hint
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		where, reason, hint = syntax(err)
		return nil, where, reason, hint
	}
	return onlyDocument(file)
}

func onlyDocument(file *ast.File) (ast.Node, spot, string, string) {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if body != nil {
			return nil, start(doc.Body), "a second document begins here", "keep one document per file: take out the ---"
		}
		body = doc.Body
	}
	if body == nil {
		return nil, spot{1, 1}, "the text is empty", "start from what `spillway config init` writes"
	}
	return body, spot{}, "", ""
}

// tooMuchFlow bounds the nesting of brackets before the scanner sees the text. It counts brackets inside quotes too,
// which no page comes near.
func tooMuchFlow(text []byte) (spot, string, string) {
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
			return spot{line, col}, fmt.Sprintf("lists and maps are nested more than %d deep", maxDepth), "flatten this part"
		}
	}
	return spot{}, "", ""
}

// tooDeep bounds the tree that the parser would build.
func tooDeep(tokens token.Tokens) (spot, string, string) {
	if len(tokens) > maxTokens {
		return at(tokens[maxTokens]), fmt.Sprintf("the text has more than %d words", maxTokens), "split it, or take out what repeats"
	}
	flow, line := 0, 0
	dashes := 0 // marks that may nest on this line or, inside brackets, in this item
	var block levels
	for i, tk := range tokens {
		indented := false
		if tk.Position.Line != line {
			line = tk.Position.Line
			indented = flow == 0 && tk.Position.Column > maxIndent
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
				block.enter(2*tk.Position.Column + 1)
			}
		case token.AnchorType, token.TagType:
			dashes++
		case token.MappingValueType:
			dashes++
			if i > 0 && len(tokens[i-1].Value) > maxKey {
				return at(tokens[i-1]), fmt.Sprintf("a key is longer than %d bytes", maxKey), "keys are short names: is a quote missing?"
			}
			if i > 0 && flow == 0 {
				block.enter(2 * tokens[i-1].Position.Column)
			}
		}
		if flow+len(block) > maxDepth || dashes > maxDepth || indented {
			return at(tk), fmt.Sprintf("lists and maps are nested more than %d deep", maxDepth), "flatten this part"
		}
	}
	return spot{}, "", ""
}

// levels are the block lists and maps that are open, by where their items begin: a list may begin in the column of the
// key that holds it.
type levels []int

// enter goes to the level of an item that begins there.
func (l *levels) enter(begin int) {
	n := len(*l)
	for n > 0 && (*l)[n-1] >= begin {
		n--
	}
	*l = append((*l)[:n], begin)
}

// syntaxHints says what to do about the parser's commonest complaints.
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

func syntax(err error) (spot, string, string) {
	var located interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &located) {
		return spot{1, 1}, "the text is not well-formed YAML", ""
	}
	says := located.GetMessage()
	for _, h := range syntaxHints {
		if strings.Contains(says, h.says) {
			return at(located.GetToken()), "not well-formed YAML: " + plainly(says), h.hint
		}
	}
	return at(located.GetToken()), "not well-formed YAML: " + plainly(says), "check the indentation and the quotes of this line"
}

// plainly names what a terminal would not show.
func plainly(says string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ReplaceAll(says, "'\t'", "tab"))
}
