package openai

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

func imageDataURL(kind string, b []byte) string {
	return "data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(b)
}

// encodeTestImage returns an empty image of a size in each format that the standard library writes, and with
// WebP's three headers.
func encodeTestImage(t *testing.T, w, h int) map[string]string {
	t.Helper()
	var p, j, g bytes.Buffer
	img := image.NewGray(image.Rect(0, 0, w, h))
	if png.Encode(&p, img) != nil || jpeg.Encode(&j, img, nil) != nil || gif.Encode(&g, img, nil) != nil {
		t.Fatal("an image could not be written")
	}
	exif := append([]byte{0xff, 0xd8, 0xff, 0xe1, 0xff, 0xff}, make([]byte, 0xfffd)...) // a segment of maximum length
	w1, h1 := w-1, h-1
	bits := uint32(w1) | uint32(h1)<<14
	return map[string]string{
		"png": imageDataURL("png", p.Bytes()), "jpeg": imageDataURL("jpeg", j.Bytes()), "gif": imageDataURL("gif", g.Bytes()),
		"jpeg with metadata": imageDataURL("jpeg", append(exif, j.Bytes()[2:]...)),
		"webp lossy":         imageDataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a"+string([]byte{byte(w), byte(w >> 8), byte(h), byte(h >> 8)})+"\x00\x00")),
		"webp lossless":      imageDataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f"+string([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})+strings.Repeat("\x00", 8))),
		"webp extended":      imageDataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"+string([]byte{byte(w1), byte(w1 >> 8), 0, byte(h1), byte(h1 >> 8), 0})+"\x00\x00")),
	}
}

// TestImageTokensFollowDimensions: in every format, from the header alone, within minimum and maximum.
func TestImageTokensFollowDimensions(t *testing.T) {
	for _, c := range []struct{ w, h, want int }{{16, 16, minImageTokens}, {280, 560, 200}, {290, 550, 200}, {1024, 1024, 37 * 37}, {4000, 3000, maxImageTokens}} {
		for kind, u := range encodeTestImage(t, c.w, c.h) {
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"%s"}}]}]}`, u)
			var env Envelope
			if err := ScanChat([]byte(body), &env); err != nil {
				t.Fatal(err)
			}
			if env.Images != 1 || env.ImageTokens != c.want {
				t.Errorf("%s of %d x %d: %d images, %d tokens, want %d", kind, c.w, c.h, env.Images, env.ImageTokens, c.want)
			}
		}
	}
	whole := strings.Repeat("A", 4*157*1000)
	for u, want := range map[string]int{
		"data:":                                   minImageTokens,
		"data:image/png;base64,":                  minImageTokens,
		"data:image/avif;base64," + whole:         3000,
		"data:image/avif;base64," + whole + whole: maxImageTokens,
		"data:image/svg+xml," + whole[:157*200]:   200,
		imageDataURL("png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\xff\xff\xff\xff\xff\xff\xff\xff")): minImageTokens,
		imageDataURL("gif", []byte("GIF89a\xff\xff\xff\xff\x00\x00")):                                        maxImageTokens,
	} {
		if got := countImageTokens([]byte(u)); got != want {
			t.Errorf("%.40s: %d tokens, want %d", u, got, want)
		}
	}
}

// TestImagesInBase64Members: base64 images in Anthropic's and Ollama's messages cost the same as in a URL, and
// text costs the same as text in any member.
func TestImagesInBase64Members(t *testing.T) {
	scan := func(shape Shape, body string) (env Envelope) {
		t.Helper()
		if err := ScanBody(shape, []byte(body), &env); err != nil {
			t.Fatal(err)
		}
		return env
	}
	const chat = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[%s]}]}`
	for kind, u := range encodeTestImage(t, 1024, 1024) {
		_, raw, _ := strings.Cut(u, ",")
		source := `{"type":"base64","media_type":"image/png","data":"` + raw + `"}`
		for name, env := range map[string]Envelope{
			"Anthropic":         scan(ShapeMessages, fmt.Sprintf(chat, `{"type":"image","source":`+source+`}`)),
			"Anthropic, result": scan(ShapeMessages, fmt.Sprintf(chat, `{"type":"tool_result","content":[{"type":"image","source":`+source+`}]}`)),
			"Ollama":            scan(ShapeOllama, `{"model":"m","messages":[{"role":"user","content":"","images":["`+raw+`"]}]}`),
			"count_tokens":      scan(ShapeCount, fmt.Sprintf(chat, `{"type":"image","source":`+source+`}`)),
		} {
			if env.Images != 1 || env.ImageTokens != 37*37 || env.PromptBytes > 100 {
				t.Errorf("%s, %s: %d images of %d tokens and %d bytes of text", kind, name, env.Images, env.ImageTokens, env.PromptBytes)
			}
		}
		for _, part := range []string{`{"type":"text","text":"` + raw + `"}`, `{"type":"text","text":"` + u + `"}`, `{"type":"text","te\u0078t":"` + u + `"}`, `{"role":"user","content":"` + u + `"}`} {
			if env := scan(ShapeChat, fmt.Sprintf(chat, part)); env.Images != 0 || env.PromptBytes < len(raw) {
				t.Errorf("%s: text is %d images and %d bytes", kind, env.Images, env.PromptBytes)
			}
		}
	}
	php := strings.ReplaceAll(strings.Repeat("/9j/AAAA", 157*100), "/", `\/`) // 12 bytes for 8 of base64
	if env := scan(ShapeMessages, fmt.Sprintf(chat, `{"type":"image","source":{"data":"`+php+`"}}`)); env.Images != 1 || env.ImageTokens < 600 || env.ImageTokens > 900 {
		t.Errorf("an image with escaped slashes: %d tokens", env.ImageTokens)
	}
	if env := scan(ShapeMessages, fmt.Sprintf(chat, `{"type":"document","source":{"type":"base64","data":"JVBERi0xLjQKJcOkw7zDtsOf"}}`)); env.Images != 0 || env.PromptBytes < 24 {
		t.Errorf("a document: %+v", env)
	}
}

// FuzzCountImageTokens: for any URL the result is within the bounds, without allocation.
func FuzzCountImageTokens(f *testing.F) {
	for _, u := range []string{
		"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAA=", "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ==", "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
		"data:image/webp;base64,UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAAAAACWkAANwAP77/VA=", "data:,x", "data:image/png;base64,\\/9j",
	} {
		f.Add([]byte(u))
	}
	f.Fuzz(func(t *testing.T, u []byte) {
		if n := countImageTokens(u); n < minImageTokens || n > maxImageTokens {
			t.Fatalf("%d tokens", n)
		}
	})
}

func TestImageTokensAllocatesNothing(t *testing.T) {
	u := []byte(encodeTestImage(t, 300, 200)["jpeg with metadata"])
	if n := testing.AllocsPerRun(100, func() { countImageTokens(u) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
