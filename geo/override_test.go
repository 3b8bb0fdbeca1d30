package geo

import (
	"fmt"
	"strings"
	"testing"
)

func expectError(t *testing.T, cfg Config, says string) {
	t.Helper()
	if _, err := OpenAtlas(cfg); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want one with %q", err, says)
	}
}

func TestOverrideMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"10.0.0.0/8":                     "over.csv:1: an override is: network, latitude, longitude",
		"10.0.0.0/8,1,2,a,DE,x":          "over.csv:1: an override is",
		"\n# x\n10.0.0.0/33,1,2":         "over.csv:3: \"10.0.0.0/33\" is not a network: write it as",
		"ten,1,2":                        "is not a network",
		"fe80::1%lo,1,2":                 "is not a network",
		"10.1.0.0/8,1,2":                 "write 10.0.0.0/8",
		"::ffff:1.2.3.4/128,1,2":         "write it as IPv4",
		"10.0.0.0/8,91,2":                "\"91\" is not a latitude: write degrees from -90 to 90",
		"10.0.0.0/8,NaN,2":               "is not a latitude",
		"10.0.0.0/8,1,180.5":             "\"180.5\" is not a longitude",
		"10.0.0.0/8,1,east":              "is not a longitude",
		"10.0.0.0/8,1,2,Bonn,Germany":    "unknown country \"Germany\": write the two capital letters",
		"10.0.0.0/8,1,2\n10.0.0.0/8,3,4": "over.csv:2: network 10.0.0.0/8 is already on line 1",
		"10.0.0.0/8,1,\"2":               "over.csv: ",
	} {
		if _, err := DecodeOverrides("over.csv", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want one with %q", text, err, says)
		}
	}
	many := strings.Builder{}
	for i := range MaxOverrides + 1 {
		fmt.Fprintf(&many, "10.%d.%d.%d,1,2\n", i>>16, i>>8&255, i&255)
	}
	if _, err := DecodeOverrides("over.csv", many.String()); err == nil || !strings.Contains(err.Error(), "build an mmdb") {
		t.Errorf("error %v", err)
	}
}

// FuzzOverrides checks that all decoded overrides can be opened and looked up.
func FuzzOverrides(f *testing.F) {
	f.Add("10.1.0.0/16, 50.11, 8.68, Frankfurt, DE\n# x\n2001:db8::/32,1,2")
	f.Add("10.0.0.0/8,1,\"2")
	f.Fuzz(func(t *testing.T, text string) {
		overrides, err := DecodeOverrides("fuzz", text)
		if err != nil || len(overrides) > 64 {
			return
		}
		a, err := OpenAtlas(Config{Overrides: overrides})
		if err != nil {
			t.Fatalf("%q decodes to %v, which cannot be opened: %v", text, overrides, err)
		}
		for _, o := range overrides {
			if _, skipped := embeddedIPv4(o.Prefix.Addr()); skipped > 0 {
				continue // addresses that contain IPv4 are looked up as IPv4
			}
			if fix := a.Locate(o.Prefix.Addr()); fix.Source != SourceOverride {
				t.Fatalf("%v is not found: %+v", o, fix)
			}
		}
	})
}
