package payments

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bojanz/currency"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// The limits of what a merchant may send, in code points where they count text.
const (
	maxAmount            = 99_999_999
	maxDescription       = 1000
	maxMerchantReference = 255
	maxReason            = 255
	maxPaymentMethod     = 100
	maxMetadata          = 50
	maxMetadataName      = 40
	maxMetadataValue     = 500
)

// createBody is the body of POST /v1/payment-intents.
type createBody api.PaymentIntentCreate

// confirmBody is the body of POST /v1/payment-intents/{id}/confirm.
type confirmBody api.PaymentIntentConfirm

// refundBody is the body of POST /v1/payment-intents/{id}/refunds.
type refundBody api.RefundCreate

// fields collects what is wrong with the values of a body: all of it, so that one answer tells everything.
type fields []httpapi.FieldError

func (f *fields) refuse(code httpapi.Code, pointer, detail string) {
	*f = append(*f, httpapi.FieldError{Pointer: pointer, Code: code, Detail: detail})
}

func (f fields) err() error {
	if len(f) == 0 {
		return nil
	}
	return httpapi.InvalidFields(f...)
}

// validate checks the body and brings its currency into the canonical form.
func (b *createBody) validate(least AmountMin, gw gateway.Gateway) error {
	var f fields
	canonical, ok := canonicalCurrency(b.Currency)
	if !ok {
		f.refuse(httpapi.CodeCurrencyInvalid, "/currency", "The currency must be an ISO 4217 code, such as EUR.")
	}
	b.Currency = canonical
	f.amount(b.Amount, max(1, least[canonical]))
	f.paymentMethod(b.PaymentMethod, gw)
	if b.Confirm && b.PaymentMethod == nil {
		f.refuse(httpapi.CodeParameterMissing, "/payment_method", "An intent is confirmed with a payment_method.")
	}
	f.text("/description", b.Description, 0, maxDescription)
	f.lineText("/merchant_reference", b.MerchantReference, maxMerchantReference)
	f.metadata(&b.Metadata)
	return f.err()
}

func (b *confirmBody) validate(gw gateway.Gateway) error {
	var f fields
	f.paymentMethod(b.PaymentMethod, gw)
	return f.err()
}

func (b *refundBody) validate() error {
	var f fields
	if b.Amount != nil {
		f.amount(*b.Amount, 1)
	}
	f.text("/reason", b.Reason, 0, maxReason)
	f.metadata(&b.Metadata)
	return f.err()
}

// canonicalCurrency is the upper-case form of an ISO 4217 code. Only ASCII letters change case: no locale has a say.
func canonicalCurrency(text string) (string, bool) {
	if len(text) != 3 {
		return "", false
	}
	upper := []byte(text)
	for i, c := range upper {
		if 'a' <= c && c <= 'z' {
			upper[i] = c - ('a' - 'A')
		}
	}
	return string(upper), currency.IsValid(string(upper))
}

func (f *fields) amount(n httpapi.Integer, least int64) {
	switch {
	case n.Value < least:
		f.refuse(httpapi.CodeAmountTooSmall, "/amount", fmt.Sprintf("The amount must be at least %d minor units.", least))
	case n.OutOfRange || n.Value > maxAmount:
		f.refuse(httpapi.CodeAmountTooLarge, "/amount", fmt.Sprintf("The amount must be at most %d minor units.", maxAmount))
	}
}

func (f *fields) paymentMethod(pm *string, gw gateway.Gateway) {
	switch {
	case pm == nil:
	case !isPaymentMethod(*pm):
		f.refuse(httpapi.CodeParameterInvalid, "/payment_method",
			"A payment_method is pm_ and up to 97 letters, digits and underscores.")
	default:
		if r, ok := gw.(gateway.Recognizer); ok && !r.Recognizes(*pm) {
			f.refuse(httpapi.CodeParameterInvalid, "/payment_method", "There is no such payment_method in this mode.")
		}
	}
}

func isPaymentMethod(text string) bool {
	rest, ok := strings.CutPrefix(text, "pm_")
	if !ok || rest == "" || len(text) > maxPaymentMethod {
		return false
	}
	for i := range len(rest) {
		c := rest[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// text checks free text, which may hold every character that a body may: U+0000 alone is refused, for the whole body.
func (f *fields) text(pointer string, text *string, least, most int) {
	if text == nil {
		return
	}
	if n := utf8.RuneCountInString(*text); n < least || n > most {
		f.refuse(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("The text must have %d to %d characters.", least, most))
	}
}

// lineText checks text that names something: it fits on one line of a report.
func (f *fields) lineText(pointer string, text *string, most int) {
	before := len(*f)
	f.text(pointer, text, 1, most)
	if text == nil || len(*f) > before {
		return
	}
	for _, r := range *text {
		if !httpapi.IsLineText(r) {
			f.refuse(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("The character %U is not allowed.", r))
			return
		}
	}
}

// metadata checks names and values, and makes of no metadata an empty one.
func (f *fields) metadata(m *httpapi.StringMap) {
	if m.Values == nil {
		m.Values = map[string]string{}
	}
	if len(m.Values)+len(m.NotStrings) > maxMetadata {
		f.refuse(httpapi.CodeParameterInvalid, "/metadata", fmt.Sprintf("At most %d keys are allowed.", maxMetadata))
		return
	}
	for _, name := range m.NotStrings {
		f.refuse(httpapi.CodeParameterInvalid, "/metadata/"+pointerToken.Replace(name), "A value must be a string.")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Values)) {
		value := m.Values[name]
		pointer := "/metadata/" + pointerToken.Replace(name)
		switch {
		case utf8.RuneCountInString(name) > maxMetadataName:
			f.refuse(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("A key must have at most %d characters.", maxMetadataName))
		case strings.ContainsAny(name, "[]"):
			f.refuse(httpapi.CodeParameterInvalid, pointer, "A key must not contain [ or ].")
		case utf8.RuneCountInString(value) > maxMetadataValue:
			f.refuse(httpapi.CodeParameterInvalid, pointer, fmt.Sprintf("A value must have at most %d characters.", maxMetadataValue))
		}
	}
}

// pointerToken escapes a name for a JSON pointer (RFC 6901).
var pointerToken = strings.NewReplacer("~", "~0", "/", "~1")
