package archtest

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"
)

//go:embed bannedwords.txt
var bannedText string

// parseBannedWords maps each banned word, in lower case, to what to write instead.
func parseBannedWords(text string) (map[string]string, error) {
	words := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		forms, instead, ok := strings.Cut(line, " -> ")
		if !ok || instead == "" {
			return nil, fmt.Errorf("%q has no replacement: write WORD -> REPLACEMENT", line)
		}
		for _, word := range strings.Split(forms, ", ") {
			if _, twice := words[word]; twice || word == "" || word != strings.ToLower(word) {
				return nil, fmt.Errorf("%q: the word %q is empty, repeated or not in lower case", line, word)
			}
			words[word] = instead
		}
	}
	return words, nil
}

// isLetter reports whether c is an ASCII letter. The words are ASCII; everything else separates words.
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || isUpper(c) }

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// findBanned calls report with the offset and the word of each banned word in a text. A word ends at a non-letter and
// before an upper-case letter that follows a lower-case one, so identifiers within comments count also. Two words
// joined by a hyphen or by camel case match an entry with a hyphen.
func findBanned(text string, banned map[string]string, report func(offset int, word string)) {
	previous, previousEnd := "", -1
	for i := 0; i < len(text); {
		if !isLetter(text[i]) {
			i++
			continue
		}
		end := i + 1
		for end < len(text) && isLetter(text[end]) && (!isUpper(text[end]) || isUpper(text[end-1])) {
			end++
		}
		word := strings.ToLower(text[i:end])
		joined := previous != "" && (previousEnd == i || previousEnd == i-1 && text[previousEnd] == '-')
		if _, bad := banned[word]; bad {
			report(i, word)
		} else if pair := previous + "-" + word; joined && banned[pair] != "" {
			report(i, pair)
		}
		previous, previousEnd, i = word, end, end
	}
}

// countBannedWords counts banned words by package in the names a file declares, in comments, and in the texts of
// files that are not tests. A text is a string literal with a space: metric help, log messages, errors and command
// texts have one, keys and format fields have none.
func countBannedWords(fset *token.FileSet, banned map[string]string) func([]sourceFile) figures {
	return func(files []sourceFile) figures {
		found := figures{}
		for _, f := range files {
			if f.isGenerated() {
				continue
			}
			scan := func(pos token.Pos, text string) {
				findBanned(text, banned, func(offset int, word string) {
					at := fset.Position(pos)
					at.Line += strings.Count(text[:offset], "\n")
					found.addPlace(f.pkg, fmt.Sprintf("%s:%d %s (write: %s)", filepath.Base(at.Filename), at.Line, word, banned[word]))
				})
			}
			for _, group := range f.syntax.Comments {
				for _, c := range group.List {
					if !strings.HasPrefix(c.Text, "//go:") {
						scan(c.Pos(), c.Text)
					}
				}
			}
			tags := map[*ast.BasicLit]bool{}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				for _, name := range declaredNames(n) {
					scan(name.Pos(), name.Name)
				}
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.Field:
					tags[n.Tag] = true
				case *ast.BasicLit:
					if n.Kind == token.STRING && !f.isTest() && !tags[n] && strings.Contains(n.Value, " ") {
						scan(n.Pos(), n.Value)
					}
				}
				return true
			})
		}
		return found
	}
}

// declaredNames returns the names that a node itself declares. Uses do not count: they change with the declaration.
func declaredNames(n ast.Node) []*ast.Ident {
	var exprs []ast.Expr
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			exprs = n.Lhs
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			exprs = []ast.Expr{n.Key, n.Value}
		}
	}
	var names []*ast.Ident
	for _, e := range exprs {
		if name, ok := e.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}
