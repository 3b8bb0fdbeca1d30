package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
)

// The estimated cost of an image for a vision model, in prompt tokens, before its engine has counted it. Models
// differ by a factor of ten. The formula is that of Qwen2-VL and Qwen2.5-VL: patches of 14 pixels, of which 2 x
// 2 are one token, so that each side is rounded to 28 pixels (patch_size and merge_size in
// huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct/blob/main/preprocessor_config.json; smart_resize in
// transformers/models/qwen2_vl/image_processing_qwen2_vl.py). Anthropic's pixels / 750 is within 5 % of it.
const (
	imagePatchPixels = 28 // pixels per side of one token
	// minImageTokens is OpenAI's count for an image of low detail (platform.openai.com/docs/guides/vision,
	// "Calculating costs"). Qwen2-VL's own minimum is 4 (min_pixels 3136).
	minImageTokens = 85
	// maxImageTokens is llama.cpp's maximum for Qwen's models (tools/mtmd/clip.cpp, set_limit_image_tokens(8,
	// 4096)), and Pixtral's: 1,024 x 1,024 pixels in patches of 16 (vision_encoder in
	// huggingface.co/mistralai/Pixtral-12B-2409/blob/main/params.json). Engines with Qwen's default scale an
	// image down to 16,384 tokens only (max_pixels 12845056). An estimate that is too low is corrected by the
	// engine's count; one that is too high refuses a request.
	maxImageTokens = 4096
	// imageBytesPerToken is the size of one token's pixels in a photograph with unreadable dimensions: 784
	// pixels at about 1.6 bits each, as in JPEG at quality 80.
	imageBytesPerToken = 157
)

// countImageTokens returns the cost of the image of a data: URL: by its dimensions if its header can be parsed,
// else by its bytes.
func countImageTokens(url []byte) int {
	i := bytes.IndexByte(url, ',')
	if i < 0 {
		return minImageTokens
	}
	head, text := url[:i], url[i+1:]
	if !bytes.HasSuffix(head, []byte(";base64")) {
		return clampImageTokens(len(text) / imageBytesPerToken)
	}
	return countBase64ImageTokens(text)
}

// countBase64ImageTokens returns the cost of an image in base64.
func countBase64ImageTokens(text []byte) int {
	w, h := imageSize(base64Text(text))
	if w == 0 || h == 0 {
		return clampImageTokens(len(text) / 4 * 3 / imageBytesPerToken)
	}
	return clampImageTokens(tokensOnSide(w) * tokensOnSide(h))
}

// hasImagePrefix reports whether s begins like a PNG, JPEG, GIF or WebP in base64. PHP encodes a slash as \/.
func hasImagePrefix(s []byte) bool {
	for _, begin := range [...]string{"iVBORw0KGgo", "/9j/", `\/9j\/`, "R0lGOD", "UklGR"} {
		if len(s) > len(begin) && string(s[:len(begin)]) == begin {
			return true
		}
	}
	return false
}

// tokensOnSide returns the tokens per side, capped so that two can be multiplied: a header may contain any
// size.
func tokensOnSide(side int) int {
	return min(max((side+imagePatchPixels/2)/imagePatchPixels, 1), maxImageTokens)
}

func clampImageTokens(n int) int { return max(minImageTokens, min(n, maxImageTokens)) }

// base64Text is base64 text with random access: any part can be decoded without the rest.
type base64Text []byte

// readAt decodes the bytes from offset on into p. It returns false if there are too few or the text is not
// base64.
func (e base64Text) readAt(p []byte, offset int) bool {
	var group [3]byte
	for n := range p {
		at := offset + n
		if n == 0 || at%3 == 0 {
			i := at / 3 * 4
			if i < 0 || i+4 > len(e) {
				return false
			}
			if got, err := base64.StdEncoding.Decode(group[:], e[i:i+4]); err != nil || got < 3 && at%3 >= got {
				return false
			}
		}
		p[n] = group[at%3]
	}
	return true
}

// maxJPEGSegments bounds the segments of a JPEG before the one with its size: metadata takes only a few.
const maxJPEGSegments = 64

// imageSize reads the dimensions from the header of a PNG, GIF, WebP or JPEG; zeros for other formats.
func imageSize(e base64Text) (width, height int) {
	var b [30]byte
	if !e.readAt(b[:12], 0) {
		return 0, 0
	}
	switch {
	case string(b[:8]) == "\x89PNG\r\n\x1a\n":
		if e.readAt(b[:24], 0) && string(b[12:16]) == "IHDR" {
			return validSide(binary.BigEndian.Uint32(b[16:])), validSide(binary.BigEndian.Uint32(b[20:]))
		}
	case string(b[:6]) == "GIF87a", string(b[:6]) == "GIF89a":
		return int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:]))
	case string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		if e.readAt(b[:30], 0) {
			return webpSize(b[12:])
		}
	case b[0] == 0xff && b[1] == 0xd8:
		return jpegSize(e)
	}
	return 0, 0
}

// validSide returns a dimension, or 0 if it is out of range.
func validSide(v uint32) int {
	if v > 1<<24 {
		return 0
	}
	return int(v)
}

// webpSize parses the first chunk of a WebP: its name, its length, and the beginning of its content.
func webpSize(b []byte) (width, height int) {
	switch string(b[:4]) {
	case "VP8 ": // after the three-byte frame tag and the start code
		if b[11] == 0x9d && b[12] == 0x01 && b[13] == 0x2a {
			return int(binary.LittleEndian.Uint16(b[14:])) & 0x3fff, int(binary.LittleEndian.Uint16(b[16:])) & 0x3fff
		}
	case "VP8L":
		if b[8] == 0x2f {
			bits := binary.LittleEndian.Uint32(b[9:])
			return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
		}
	case "VP8X":
		return 1 + int(uint32(b[12])|uint32(b[13])<<8|uint32(b[14])<<16), 1 + int(uint32(b[15])|uint32(b[16])<<8|uint32(b[17])<<16)
	}
	return 0, 0
}

// jpegSize walks the segments up to the one with the frame size.
func jpegSize(e base64Text) (width, height int) {
	var b [9]byte
	at := 2
	for range maxJPEGSegments {
		if !e.readAt(b[:4], at) || b[0] != 0xff {
			return 0, 0
		}
		kind, length := b[1], int(binary.BigEndian.Uint16(b[2:]))
		switch {
		case kind == 0xff: // fill byte
			at++
			continue
		case kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc:
			if !e.readAt(b[:9], at) {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(b[7:])), int(binary.BigEndian.Uint16(b[5:]))
		case kind == 0xd9 || kind == 0xda || length < 2:
			return 0, 0
		}
		at += 2 + length
	}
	return 0, 0
}
