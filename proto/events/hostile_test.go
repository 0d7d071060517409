package events_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

// envelope writes a payment_intent event with members in the place of whole ones, "" leaving one out.
func envelope(replace map[string]string) string {
	parts := []string{}
	for _, member := range [][2]string{
		{"id", `"` + eventID + `"`},
		{"type", `"payment_intent.succeeded"`},
		{"created", `1764500000`},
		{"livemode", `false`},
		{"api_version", `"v1"`},
		{"request", `{"id":null,"idempotency_key":null}`},
		{"data", `{"object":{"object":"payment_intent"}}`},
	} {
		text, ok := replace[member[0]]
		if !ok {
			text = member[1]
		}
		if text != "" {
			parts = append(parts, `"`+member[0]+`":`+text)
		}
	}
	if extra := replace["+"]; extra != "" {
		parts = append(parts, extra)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func one(member, text string) string { return envelope(map[string]string{member: text}) }

func inObject(members string) string {
	return one("data", `{"object":{"object":"payment_intent",`+members+`}}`)
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value string
		want  error
	}{
		"Empty":                  {"", events.ErrNotJSON},
		"Space":                  {" \n", events.ErrNotJSON},
		"Text":                   {"hello, this is no JSON", events.ErrNotJSON},
		"ByteOrderMark":          {"\ufeff" + envelope(nil), events.ErrNotJSON},
		"NULByte":                {"\x00", events.ErrNotJSON},
		"NULBytesAfter":          {envelope(nil) + "\x00", events.ErrNotJSON},
		"NULInString":            {inObject("\"description\":\"a\x00b\""), events.ErrNotJSON},
		"EscapedNUL":             {inObject(`"description":"a\u0000b"`), events.ErrNotJSON},
		"EscapedNULAfterEscape":  {inObject(`"description":"a\\\u0000b"`), events.ErrNotJSON},
		"EscapedNULInName":       {inObject(`"a\u0000b":1`), events.ErrNotJSON},
		"LoneHighSurrogate":      {inObject(`"description":"\ud83d"`), events.ErrNotJSON},
		"LoneLowSurrogate":       {inObject(`"description":"\ude00 "`), events.ErrNotJSON},
		"LoneSurrogateInID":      {one("id", `"\ud83d"`), events.ErrNotJSON},
		"InvalidUTF8":            {inObject("\"description\":\"\xff\""), events.ErrNotJSON},
		"OverlongUTF8":           {inObject("\"description\":\"\xc0\xaf\""), events.ErrNotJSON},
		"Truncated":              {envelope(nil)[:60], events.ErrNotJSON},
		"TruncatedByOne":         {strings.TrimSuffix(envelope(nil), "}"), events.ErrNotJSON},
		"Trailing":               {envelope(nil) + "{}", events.ErrNotJSON},
		"TwoLines":               {envelope(nil) + "\n" + envelope(nil), events.ErrNotJSON},
		"TrailingComma":          {envelope(map[string]string{"+": `"a":1,`}), events.ErrNotJSON},
		"NameWithoutValue":       {`{"id"}`, events.ErrNotJSON},
		"NaN":                    {one("created", "NaN"), events.ErrNotJSON},
		"LeadingZero":            {one("created", "01"), events.ErrNotJSON},
		"Comment":                {"{/* no */}", events.ErrNotJSON},
		"SingleQuotes":           {"{'id':1}", events.ErrNotJSON},
		"Avro":                   {"\x00\x00\x00\x00\x01abc", events.ErrNotJSON},
		"MegabyteOfText":         {strings.Repeat("a", 1<<20), events.ErrTooLarge},
		"MegabyteOfJSON":         {inObject(`"description":"` + strings.Repeat("a", 1<<20) + `"`), events.ErrTooLarge},
		"OneByteTooLarge":        {pad(events.MaxSize + 1), events.ErrTooLarge},
		"DeepInObject":           {inObject(`"x":` + nested(100_000)), events.ErrTooLarge},
		"DeepInEnvelope":         {envelope(map[string]string{"+": `"x":` + nested(65)}), events.ErrTooLarge},
		"DeepAtTheTop":           {nested(1000), events.ErrTooLarge},
		"DeepAndUnclosed":        {strings.Repeat(`{"a":`, 50_000), events.ErrTooLarge},
		"Null":                   {"null", events.ErrInvalid},
		"Array":                  {"[" + envelope(nil) + "]", events.ErrInvalid},
		"String":                 {`"` + eventID + `"`, events.ErrInvalid},
		"EmptyObject":            {"{}", events.ErrInvalid},
		"NoID":                   {one("id", ""), events.ErrInvalid},
		"NoType":                 {one("type", ""), events.ErrInvalid},
		"NoCreated":              {one("created", ""), events.ErrInvalid},
		"NoLivemode":             {one("livemode", ""), events.ErrInvalid},
		"NoData":                 {one("data", ""), events.ErrInvalid},
		"NoObject":               {one("data", "{}"), events.ErrInvalid},
		"OtherCase":              {strings.Replace(envelope(nil), `"livemode"`, `"Livemode"`, 1), events.ErrInvalid},
		"NullID":                 {one("id", "null"), events.ErrInvalid},
		"NullLivemode":           {one("livemode", "null"), events.ErrInvalid},
		"NullData":               {one("data", "null"), events.ErrInvalid},
		"NumberID":               {one("id", "7"), events.ErrInvalid},
		"EmptyID":                {one("id", `""`), events.ErrInvalid},
		"OtherID":                {one("id", `"pi_01kdqx7h2ge9wbe8zrb7b8s3mq"`), events.ErrInvalid},
		"ShortID":                {one("id", `"evt_01kdqx7h2ge9wbe8zrb7b8s3m"`), events.ErrInvalid},
		"UpperID":                {one("id", `"evt_01KDQX7H2GE9WBE8ZRB7B8S3MQ"`), events.ErrInvalid},
		"OverflowingID":          {one("id", `"evt_81kdqx7h2ge9wbe8zrb7b8s3mq"`), events.ErrInvalid},
		"LettersOutOfBase32":     {one("id", `"evt_01kdqx7h2ge9wbe8zrb7b8s3mu"`), events.ErrInvalid},
		"TypeObject":             {one("type", `{"a":"b"}`), events.ErrInvalid},
		"LivemodeString":         {one("livemode", `"true"`), events.ErrInvalid},
		"LivemodeNumber":         {one("livemode", `1`), events.ErrInvalid},
		"CreatedString":          {one("created", `"1764500000"`), events.ErrInvalid},
		"CreatedFraction":        {one("created", `1764500000.5`), events.ErrInvalid},
		"CreatedExponent":        {one("created", `1e9`), events.ErrInvalid},
		"CreatedRFC3339":         {one("created", `"2025-11-30T11:33:20Z"`), events.ErrInvalid},
		"CreatedZero":            {one("created", `0`), events.ErrInvalid},
		"CreatedNegative":        {one("created", `-1764500000`), events.ErrInvalid},
		"CreatedInMilliseconds":  {one("created", `1764500000000`), events.ErrInvalid},
		"CreatedTooLong":         {one("created", strings.Repeat("9", 400)), events.ErrInvalid},
		"VersionNumber":          {one("api_version", `1`), events.ErrInvalid},
		"DataArray":              {one("data", `[]`), events.ErrInvalid},
		"ObjectString":           {one("data", `{"object":"pi"}`), events.ErrInvalid},
		"TwoIDs":                 {envelope(map[string]string{"+": `"id":"` + eventID + `"`}), events.ErrInvalid},
		"TwoIDsOneEscaped":       {envelope(map[string]string{"+": `"\u0069d":"` + eventID + `"`}), events.ErrInvalid},
		"TwoTypes":               {envelope(map[string]string{"+": `"type":"ping"`}), events.ErrInvalid},
		"TwoLivemodes":           {envelope(map[string]string{"+": `"livemode":true`}), events.ErrInvalid},
		"TwoData":                {envelope(map[string]string{"+": `"data":{"object":{}}`}), events.ErrInvalid},
		"TwoObjects":             {one("data", `{"object":{},"object":{}}`), events.ErrInvalid},
		"UnknownType":            {one("type", `"payment_intent.exploded"`), events.ErrUnknownType},
		"EmptyType":              {one("type", `""`), events.ErrUnknownType},
		"TypeWithSpace":          {one("type", `"ping "`), events.ErrUnknownType},
		"SchemaVersion99":        {one("api_version", `"99"`), events.ErrUnsupportedVersion},
		"SchemaVersion99Spelled": {one("api_version", `"v99"`), events.ErrUnsupportedVersion},
		"SchemaVersion2Point1":   {one("api_version", `"v2.1"`), events.ErrUnsupportedVersion},
		"SchemaVersionMinor":     {one("api_version", `"v1.7"`), events.ErrUnsupportedVersion},
		"SchemaVersionBare":      {one("api_version", `"1"`), events.ErrUnsupportedVersion},
		"SchemaVersionUpper":     {one("api_version", `"V1"`), events.ErrUnsupportedVersion},
		"SchemaVersionCalendar":  {one("api_version", `"2026-11-30"`), events.ErrUnsupportedVersion},
		"SchemaVersionNoDate":    {one("api_version", `"9999-99-99"`), events.ErrUnsupportedVersion},
		"PingWithoutEndpoint":    {one("type", `"ping"`), events.ErrInvalid},
		"PingOfSomethingElse": {envelope(map[string]string{
			"type": `"ping"`, "data": `{"object":{"id":"pi_01kdqx7h2ge9wbe8zrb7b8s3mq","object":"webhook_endpoint"}}`,
		}), events.ErrInvalid},
		"PingOfTwo": {envelope(map[string]string{
			"type": `"ping"`, "data": `{"object":{"id":"` + endpointID + `","id":"` + endpointID + `"}}`,
		}), events.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := events.ParseHeader([]byte(test.value))
			requireRefusal(t, err, test.want)
			_, err = events.Parse([]byte(test.value))
			requireRefusal(t, err, test.want)
			_, err = events.ParseStrict([]byte(test.value))
			requireRefusal(t, err, test.want)
		})
	}
}

// requireRefusal also wants a message that a text column of Postgres and a line of a log can hold.
func requireRefusal(t *testing.T, err, want error) {
	t.Helper()
	require.ErrorIs(t, err, want)
	require.NotEmpty(t, events.Reason(err))
	require.Equal(t, events.Reason(want), events.Reason(fmt.Errorf("reading: %w", err)))
	require.True(t, utf8.ValidString(err.Error()))
	require.NotContains(t, err.Error(), "\x00")
	require.Less(t, len(err.Error()), 400)
}

func pad(size int) string {
	const member = `"padding":""`
	bare := len(envelope(map[string]string{"+": member}))
	return envelope(map[string]string{"+": `"padding":"` + strings.Repeat("x", size-bare) + `"`})
}

// What is in data.object is the merchant's affair, not the router's; the header is read whatever stands there, and in any order.
func TestParseHeader_Accepts(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"Plain":               envelope(nil),
		"Space":               " \n" + strings.ReplaceAll(envelope(nil), `":`, "\" :\t") + "\r\n",
		"LargestSize":         pad(events.MaxSize),
		"DuplicatesInObject":  inObject(`"a":1,"a":2,"id":"x","id":"y"`),
		"DuplicatesElsewhere": envelope(map[string]string{"+": `"x":1,"x":2`}),
		"BigIntegers":         inObject(`"n":9007199254740993,"m":123456789012345678901234567890`),
		"EscapedBackslash":    inObject(`"description":"C:\\u0000"`),
		"FourEscapes":         inObject(`"description":"\\\\u0000"`),
		"Emoji":               inObject(`"description":"\ud83d\ude00 😀"`),
		"Slashes":             inObject(`"description":"\/"`),
		"EscapedNames":        strings.Replace(envelope(nil), `"type"`, `"t\u0079pe"`, 1),
		"EscapedValues":       one("type", `"payment_intent\u002esucceeded"`),
		"Deep":                envelope(map[string]string{"+": `"x":` + nested(63)}),
		"NoAPIVersion":        one("api_version", ""),
		"NoRequest":           one("request", ""),
		"EmptyObject":         one("data", `{"object":{}}`),
		"WrongTypesInObject":  inObject(`"amount":"many"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := strings.Clone(value)
			h, err := events.ParseHeader([]byte(value))
			require.NoError(t, err)
			require.Equal(t, eventID, h.ID)
			require.Equal(t, events.TypePaymentIntentSucceeded, h.Type)
			require.Equal(t, int64(1764500000), h.Created)
			require.False(t, h.Livemode)
			require.Equal(t, before, value)
		})
	}
	last := `{"data":{"object":{"id":"` + endpointID + `"}},"livemode":true,"created":1,"type":"ping","id":"` + eventID + `"}`
	h, err := events.ParseHeader([]byte(last))
	require.NoError(t, err)
	require.Equal(t, events.Header{ID: eventID, Type: "ping", Created: 1, Livemode: true, EndpointID: endpointID}, h)
}

// A refused value keeps its identity, so that support finds it.
func TestParseHeader_AnswersWhatItRead(t *testing.T) {
	t.Parallel()
	h, err := events.ParseHeader([]byte(one("type", `"dispute.created"`)))
	require.ErrorIs(t, err, events.ErrUnknownType)
	require.Equal(t, eventID, h.ID)
	require.Equal(t, "dispute.created", h.Type)
}

func TestParse_RefusesObjects(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"AmountText":         inObject(`"amount":"many"`),
		"AmountFraction":     inObject(`"amount":1.5`),
		"AmountTooLarge":     inObject(`"amount":9223372036854775808`),
		"StatusNumber":       inObject(`"status":1`),
		"MetadataNested":     inObject(`"metadata":{"a":{"b":"c"}}`),
		"MetadataNumber":     inObject(`"metadata":{"a":1}`),
		"MetadataDuplicate":  inObject(`"metadata":{"a":"1","a":"2"}`),
		"DuplicateMember":    inObject(`"amount":1,"amount":2`),
		"LastErrorString":    inObject(`"last_payment_error":"card_declined"`),
		"ObjectOfOtherKind":  one("data", `{"object":{"object":"refund"}}`),
		"ObjectWithoutKind":  one("data", `{"object":{}}`),
		"RequestIsAString":   one("request", `"req_x"`),
		"RequestIDIsANumber": one("request", `{"id":7}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := events.Parse([]byte(value))
			requireRefusal(t, err, events.ErrInvalid)
		})
	}
}

// Each member in turn is renamed, removed or nulled; each integer is written as a string.
func TestParseStrict_HoldsProducersToTheContract(t *testing.T) {
	t.Parallel()
	optional := map[string]bool{
		"request": true, "description": true, "merchant_reference": true, "payment_method": true,
		"last_payment_error": true, "latest_attempt": true,
	}
	base := example(t, events.TypePaymentIntentSucceeded)
	level := map[string]func(map[string]any) map[string]any{
		"envelope": func(event map[string]any) map[string]any { return event },
		"object":   object,
	}
	for where, at := range level {
		names := []string{}
		edit(t, base, func(event map[string]any) {
			for name := range at(event) {
				names = append(names, name)
			}
		})
		require.GreaterOrEqual(t, len(names), 7)
		for _, name := range names {
			renamed := edit(t, base, func(event map[string]any) {
				at(event)[name+"_2"] = at(event)[name]
			})
			_, err := events.ParseStrict(renamed)
			require.ErrorIs(t, err, events.ErrInvalid, where+" "+name)

			for how, change := range map[string]func(map[string]any){
				"absent": func(event map[string]any) { delete(at(event), name) },
				"null":   func(event map[string]any) { at(event)[name] = nil },
			} {
				_, err := events.ParseStrict(edit(t, base, change))
				if optional[name] {
					require.NoError(t, err, where+" "+name+" "+how)
				} else {
					require.ErrorIs(t, err, events.ErrInvalid, where+" "+name+" "+how)
				}
			}
		}
	}
	for _, name := range []string{"amount", "amount_refunded", "created", "version"} {
		quoted := edit(t, base, func(event map[string]any) { object(event)[name] = "5" })
		_, err := events.Parse(quoted)
		require.NoError(t, err, "the protobuf JSON mapping allows it")
		_, err = events.ParseStrict(quoted)
		require.ErrorIs(t, err, events.ErrInvalid)
		require.ErrorContains(t, err, "data.object."+name+" is an integer in a string")
	}
	secret := edit(t, example(t, events.TypePing), func(event map[string]any) { object(event)["secret"] = "whsec_x" })
	_, err := events.ParseStrict(secret)
	require.ErrorIs(t, err, events.ErrInvalid, "a secret never travels")
}

func TestReason(t *testing.T) {
	t.Parallel()
	require.Equal(t, "not_json", events.Reason(events.ErrNotJSON))
	require.Equal(t, "too_large", events.Reason(events.ErrTooLarge))
	require.Equal(t, "invalid_event", events.Reason(events.ErrInvalid))
	require.Equal(t, "unknown_type", events.Reason(events.ErrUnknownType))
	require.Equal(t, "unknown_version", events.Reason(events.ErrUnsupportedVersion))
	require.Empty(t, events.Reason(errors.New("connection refused")))
	require.Empty(t, events.Reason(nil))
}

// Whatever the bytes: no panic, one of our errors, and what Parse takes ParseHeader takes with the same answers.
func FuzzParse(f *testing.F) {
	for _, eventType := range allTypes() {
		f.Add(example(f, eventType))
	}
	f.Add([]byte(inObject(`"description":"\ud83d"`)))
	f.Add([]byte(nested(70)))
	f.Fuzz(func(t *testing.T, value []byte) {
		before := string(value)
		h, headerErr := events.ParseHeader(value)
		event, err := events.Parse(value)
		if headerErr != nil {
			require.NotEmpty(t, events.Reason(headerErr))
			require.Error(t, err)
		}
		if err != nil {
			require.NotEmpty(t, events.Reason(err))
		} else {
			require.Equal(t, h.ID, event.GetId())
			require.Equal(t, h.Type, event.GetType())
			require.Equal(t, h.Created, event.GetCreated())
			require.Equal(t, h.Livemode, event.GetLivemode())
		}
		_, _ = events.ParseStrict(value)
		require.Equal(t, before, string(value))
	})
}

func BenchmarkParseHeader(b *testing.B) {
	value := example(b, events.TypePaymentIntentSucceeded)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.ParseHeader(value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	value := example(b, events.TypePaymentIntentSucceeded)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Parse(value); err != nil {
			b.Fatal(err)
		}
	}
}
