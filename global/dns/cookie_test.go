package dns

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"
)

// rfcCookies are the examples of RFC 9018, appendix A.
var rfcCookies = []struct {
	name, client, from, secret, want string
	at                               int64
}{
	{"A.1 a new client", "2464c4abcf10c957", "198.51.100.100", "e5e973e5a6b2a43f48e7dc849e37bfcf", "010000005cf79f111f8130c3eee29480", 1559731985},
	{"A.2 the same later", "2464c4abcf10c957", "198.51.100.100", "e5e973e5a6b2a43f48e7dc849e37bfcf", "010000005cf7a871d4a564a1442aca77", 1559734385},
	{"A.3 another client", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", "203.0.113.203", "e5e973e5a6b2a43f48e7dc849e37bfcf", "010000005cf7a9acf73a7810aca2381e", 1559734700},
	{"A.4 IPv6 and a new secret", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", "2001:db8:220:1:59de:d0f4:8769:82b8", "445536bcd2513298075a5d379663c962", "010000005cf7c609a6bb79d16625507a", 1559741961},
}

func parseSecret(t testing.TB, text string) (s CookieSecret) {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil || copy(s[:], b) != len(s) {
		t.Fatal(text, err)
	}
	return s
}

func parseClientCookie(t testing.TB, text string) (c cookie) {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil || !c.parseOption(b) {
		t.Fatal(text, err)
	}
	return c
}

func TestCookiesOfRFC9018(t *testing.T) {
	for _, c := range rfcCookies {
		t.Run(c.name, func(t *testing.T) {
			q := parseClientCookie(t, c.client)
			got, proven := q.checkCookie([]CookieSecret{parseSecret(t, c.secret)}, netip.MustParseAddr(c.from), time.Unix(c.at, 0))
			if text := hex.EncodeToString(got.data[:]); text != c.client[:16]+c.want || proven {
				t.Errorf("cookie %s, proven %v; want %s", text, proven, c.client[:16]+c.want)
			}
		})
	}
}

// TestCookiesOfOtherImplementationsAreRenewed uses cookies of another implementation: with reserved octets set, and
// with a secret that has been replaced. Both are answered with a new cookie.
func TestCookiesOfOtherImplementationsAreRenewed(t *testing.T) {
	old, next := parseSecret(t, "dd3bdf9344b678b185a6f5cb60fca715"), parseSecret(t, rfcCookies[3].secret)
	for i, secrets := range map[int][]CookieSecret{2: {parseSecret(t, rfcCookies[2].secret)}, 3: {next, old}} {
		c := rfcCookies[i]
		q := parseClientCookie(t, c.client)
		at := time.Unix(int64(binary.BigEndian.Uint32(q.data[12:]))+60, 0)
		got, proven := q.checkCookie(secrets, netip.MustParseAddr(c.from), at)
		if !proven || got == q || got.data[9] != 0 {
			t.Errorf("%s: %x, proven %v", c.name, got.data, proven)
		}
	}
}

func TestCookieIsValidUntilItExpiresOrTheAddressChanges(t *testing.T) {
	first, second := parseSecret(t, rfcCookies[0].secret), parseSecret(t, rfcCookies[3].secret)
	from, at := netip.MustParseAddr("198.51.100.100"), time.Unix(1559731985, 0)
	q := parseClientCookie(t, rfcCookies[0].client)
	given, _ := q.checkCookie([]CookieSecret{first}, from, at)
	for _, c := range []struct {
		name         string
		secrets      []CookieSecret
		from         string
		after        time.Duration
		proven, kept bool
	}{
		{"at once", []CookieSecret{first}, "198.51.100.100", 0, true, true},
		{"mapped into IPv6", []CookieSecret{first}, "::ffff:198.51.100.100", 0, true, true},
		{"nearly half an hour old", []CookieSecret{first}, "198.51.100.100", 1799 * time.Second, true, true},
		{"half an hour old is renewed", []CookieSecret{first}, "198.51.100.100", 1800 * time.Second, true, false},
		{"an hour old", []CookieSecret{first}, "198.51.100.100", time.Hour, true, false},
		{"older", []CookieSecret{first}, "198.51.100.100", 3601 * time.Second, false, false},
		{"from the future", []CookieSecret{first}, "198.51.100.100", -300 * time.Second, true, true},
		{"from further ahead", []CookieSecret{first}, "198.51.100.100", -301 * time.Second, false, false},
		{"another address", []CookieSecret{first}, "198.51.100.101", 0, false, false},
		{"rolled over", []CookieSecret{second, first}, "198.51.100.100", 0, true, false},
		{"rolled over twice", []CookieSecret{second, second, first}, "198.51.100.100", 0, true, false},
		{"another secret", []CookieSecret{second}, "198.51.100.100", 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, proven := given.checkCookie(c.secrets, netip.MustParseAddr(c.from), at.Add(c.after))
			if proven != c.proven || (got == given) != c.kept {
				t.Errorf("proven %v, kept %v; want %v, %v", proven, got == given, c.proven, c.kept)
			}
			if again, ok := got.checkCookie(c.secrets, netip.MustParseAddr(c.from), at.Add(c.after)); !ok || again != got {
				t.Errorf("the cookie that was answered is not taken back")
			}
		})
	}
	if got, proven := given.checkCookie(nil, from, at); proven || got.hasClient {
		t.Errorf("without a secret: %v, proven %v", got, proven)
	}
	wrong := given
	wrong.data[20] ^= 1
	if _, proven := wrong.checkCookie([]CookieSecret{first}, from, at); proven {
		t.Error("a cookie with one bit changed is proven")
	}
}

func TestSipHash(t *testing.T) {
	// The reference vector for 15 octets (Aumasson and Bernstein, appendix A).
	var key CookieSecret
	msg := make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range msg {
		msg[i] = byte(i)
	}
	if got := sipHash(&key, msg); got != 0xa129ca6149be45e5 {
		t.Errorf("got %x", got)
	}
}
