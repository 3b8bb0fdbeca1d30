package strict

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// plainPattern matches text that needs no quotes, if it is neither a number nor reserved.
var plainPattern = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$|^[0-9]+(\.[0-9]+){3}$|^[0-9]+[a-z]+[0-9a-z.]*$`)

// TestPlainTextNeedsNoQuotes compares isPlainText with its definition.
func TestPlainTextNeedsNoQuotes(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-zA-Z_.+/-]{0,6}`), rapid.StringMatching(`[0-9]{1,2}[eboxpEBOX][0-9a-f.]{0,3}`),
		rapid.StringMatching(`[0-9]{0,2}(\.[0-9]{0,2}){2,4}`), rapid.SampledFrom([]string{"inf", "Infinity", "NaN", "TRUE", "No", "y", "infinitys"}))
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "text")
		want := plainPattern.MatchString(s) && !slices.Contains(reservedWords, strings.ToLower(s))
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			want = false
		}
		if _, err := strconv.ParseInt(s, 0, 64); err == nil {
			want = false
		}
		if got := isPlainText(s); got != want {
			t.Fatalf("isPlainText(%q) is %v", s, got)
		}
	})
}
