package httpapi

import "unicode"

// Text that people send follows one rule in both APIs. Free text (descriptions,
// reasons, metadata) may hold every character but U+0000, which [DecodeStrict]
// refuses everywhere: what it means is the sender's business, and it is only
// ever shown escaped. Text that names something (a merchant's reference, a
// tenant) fits on one line.

// IsLineText says whether a character fits on one line: it is no control
// character and no separator of lines or paragraphs.
func IsLineText(r rune) bool {
	return !unicode.IsControl(r) && r != '\u2028' && r != '\u2029'
}
