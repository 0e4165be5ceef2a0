package draw

import (
	"math"
	"strings"
)

const (
	fontSize   = 15
	lineHeight = 20
)

// advances are widths in thousandths of the font size. They are those of DejaVu Sans, which
// is wider than the other usual fonts without serifs, so text fits with those as well.
var advances = map[rune]int{
	' ': 318, '.': 318, ',': 318, ':': 337, ';': 337, '\'': 275, '"': 460, '!': 401, '(': 390, ')': 390, '[': 390, ']': 390,
	'/': 337, '|': 337, '-': 361, '_': 500, '+': 838, '=': 838, '<': 838, '>': 838, '%': 950, '@': 1000, '&': 780, '#': 838, '?': 531,
	'i': 278, 'j': 278, 'l': 278, 'f': 352, 't': 392, 'r': 411, 's': 521, 'c': 550, 'z': 525, 'k': 579, 'v': 592, 'x': 592, 'y': 592,
	'a': 613, 'e': 615, 'o': 612, 'w': 818, 'm': 974,
	'A': 684, 'B': 686, 'C': 698, 'D': 770, 'E': 632, 'F': 575, 'G': 775, 'H': 752, 'I': 295, 'J': 295, 'K': 656, 'L': 557, 'M': 863,
	'N': 748, 'O': 787, 'P': 603, 'Q': 787, 'R': 695, 'S': 635, 'T': 611, 'U': 732, 'V': 684, 'W': 989, 'X': 685, 'Y': 611, 'Z': 685,
	'≤': 838, '−': 838, '×': 838, '…': 1000, '→': 838,
}

// width returns the width of s in pixels.
func width(s string, bold bool) int {
	sum := 0
	for _, r := range s {
		w, ok := advances[r]
		switch {
		case ok:
		case r < 0x2e80:
			w = 636 // digits and the other small letters
		default:
			w = 1000 // Chinese characters
		}
		sum += w
	}
	size := float64(sum) / 1000 * fontSize
	if bold {
		size *= 1.12
	}
	return int(math.Ceil(size))
}

// wrap breaks s into lines of at most limit pixels. A newline in s breaks a line too.
// A word that is wider than limit is a line of its own.
func wrap(s string, limit int, bold bool) []string {
	var lines []string
	for part := range strings.SplitSeq(s, "\n") {
		line := ""
		for _, word := range strings.Fields(part) {
			longer := strings.TrimSpace(line + " " + word)
			if line != "" && width(longer, bold) > limit {
				lines = append(lines, line)
				longer = word
			}
			line = longer
		}
		lines = append(lines, line)
	}
	return lines
}
