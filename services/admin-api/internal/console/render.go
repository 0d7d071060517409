package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bojanz/currency"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/services/admin-api/internal/staff"
)

//go:embed templates
var templates embed.FS

//go:embed static
var static embed.FS

type pages struct{ byName map[string]*template.Template }

func loadPages() (*pages, error) {
	base, err := template.New("layout.html").Funcs(functions).ParseFS(templates, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	names, err := fs.Glob(templates, "templates/page_*.html")
	if err != nil {
		return nil, fmt.Errorf("listing the pages: %w", err)
	}
	p := &pages{byName: map[string]*template.Template{}}
	for _, name := range names {
		page, err := base.Clone()
		if err == nil {
			page, err = page.ParseFS(templates, name)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the page %s: %w", name, err)
		}
		p.byName[strings.TrimSuffix(strings.TrimPrefix(path.Base(name), "page_"), ".html")] = page
	}
	return p, nil
}

// frame is what every page has around its own data.
type frame struct {
	Title   string
	Section string
	// Body is the class of the body where nobody has signed in.
	Body     string
	SignedIn bool
	Who      staff.Identity
	CSRF     string
	Flash    *flash
	// CanSupport and CanAdmin decide which buttons there are; the API decides what they do.
	CanSupport bool
	CanAdmin   bool
	Now        time.Time
	Page       any
}

func (v *visit) render(status int, name, title string, page any) error {
	f := frame{Title: title, Body: "outside", Section: section(v.Request().URL.Path), Now: v.console.clock().UTC(), Page: page}
	if v.session != nil {
		f.SignedIn, f.Who, f.CSRF = true, v.who, v.session.CSRF
		f.CanSupport, f.CanAdmin = v.who.Role.May(staff.Support), v.who.Role.May(staff.Admin)
	}
	if name == "docs" {
		f.Body = "reference"
	}
	f.Flash = v.told()
	// Into a buffer: a page that fails in its middle must not look finished.
	var body bytes.Buffer
	if err := v.console.pages.byName[name].Execute(&body, f); err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	return v.Blob(status, "text/html; charset=utf-8", body.Bytes())
}

func section(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "events" || first == "find" {
		return "deliveries"
	}
	return first
}

// assetVersion is in the address of every asset, so that browsers may keep them for good.
var assetVersion = sync.OnceValue(func() string {
	hash := sha256.New()
	_ = fs.WalkDir(static, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		hash.Write(body)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)[:6])
})

func (c *Console) asset(ec echo.Context) error {
	name := "static/" + strings.TrimPrefix(path.Clean("/"+ec.Param("*")), "/")
	body, err := static.ReadFile(name)
	if err != nil {
		return echo.ErrNotFound
	}
	age := "public, max-age=300"
	if ec.QueryParam("v") == assetVersion() {
		age = "public, max-age=31536000, immutable"
	}
	ec.Response().Header().Set("Cache-Control", age)
	return ec.Blob(http.StatusOK, mime.TypeByExtension(path.Ext(name)), body)
}

func (v *visit) form(name string) string { return v.Request().PostFormValue(name) }

var functions = template.FuncMap{
	"time":      timeElement,
	"ago":       agoElement,
	"due":       dueElement,
	"asset":     func(name string) string { return "/assets/" + name + "?v=" + assetVersion() },
	"class":     classText,
	"classWord": classWord,
	"unknown":   orUnknown,
	"count":     count,
	"money":     money,
	"percent":   percent,
	"words":     func(text string) string { return strings.ReplaceAll(text, "_", " ") },
	"reason":    reasonText,
	"tone":      tone,
	"phases":    phases,
	"short":     short,
	"soft":      soft,
	"page":      pageOf,
	"seconds":   seconds,
	"bytes":     byteSize,
	"deref":     func(text *string) string { return orEmpty(text) },
	"plural":    plural,
	"dict":      dict,
	"changes":   changes,
	"cursor":    cursorLink,
	"anchor":    func(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "-")) },
	"add":       func(a, b int64) int64 { return a + b },
	"reasonCodes": func() []string {
		return []string{"attempts_exhausted", "endpoint_disabled", "endpoint_deleted", "expired"}
	},
	"statusCode": func(n *int) int { return *n },
	"number":     func(n *int64) int64 { return *n },
	// A count that is not known does not keep anybody from going on.
	"orOne": func(n *int64) int64 {
		if n == nil {
			return 1
		}
		return *n
	},
	"reversed":      func(list []attempt) []attempt { return reversed(list) },
	"reversedHours": func(list []healthHour) []healthHour { return reversed(list) },
}

func reversed[T any](list []T) []T {
	turned := slices.Clone(list)
	slices.Reverse(turned)
	return turned
}

// timeElement shows a time in UTC, which the browser changes into the reader's own zone.
func timeElement(at any) template.HTML {
	t, ok := asTime(at)
	if !ok {
		return `<span class="muted">–</span>`
	}
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339Nano) + `">` + t.UTC().Format("2006-01-02 15:04:05") + ` UTC</time>`) // #nosec G203 -- digits only
}

// agoElement is the distance from now, which the browser keeps up to date.
func agoElement(at any, now time.Time) template.HTML {
	t, ok := asTime(at)
	if !ok {
		return ""
	}
	return template.HTML(`<time class="relative" data-relative datetime="` + t.UTC().Format(time.RFC3339Nano) + `">` + relative(t, now) + `</time>`) // #nosec G203 -- digits and fixed words only
}

// dueElement is agoElement for what is to come; what is past its time is due.
func dueElement(at any, now time.Time) template.HTML {
	if t, ok := asTime(at); ok && !t.After(now) {
		return "due now"
	}
	return agoElement(at, now)
}

func asTime(at any) (time.Time, bool) {
	switch t := at.(type) {
	case time.Time:
		return t, true
	case *time.Time:
		if t != nil {
			return *t, true
		}
	case string:
		parsed, err := time.Parse(time.RFC3339, t)
		return parsed, err == nil
	}
	return time.Time{}, false
}

func relative(t, now time.Time) string {
	d := t.Sub(now)
	future := d > 0
	if !future {
		d = -d
	}
	var text string
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		text = strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		text = strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		text = strconv.Itoa(int(d.Hours())) + " h"
	default:
		text = strconv.Itoa(int(d.Hours()/24)) + " days"
	}
	if future {
		return "in " + text
	}
	return text + " ago"
}

// orUnknown never shows a number that is not known as one.
func orUnknown(n any) string {
	switch value := n.(type) {
	case *int64:
		if value != nil {
			return count(*value)
		}
	case *int:
		if value != nil {
			return count(int64(*value))
		}
	}
	return "unknown"
}

// count groups thousands.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

func money(minor int64, code string) string {
	amount, err := currency.NewAmountFromInt64(minor, code)
	if err != nil {
		return code + " " + count(minor) + " minor units"
	}
	whole, rest, fraction := strings.Cut(amount.Number(), ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
		whole = count(n)
	}
	if fraction {
		whole += "." + rest
	}
	return code + " " + whole
}

func percent(succeeded, failed int64) string {
	if succeeded+failed == 0 {
		return "–"
	}
	share := 100 * float64(succeeded) / float64(succeeded+failed)
	// 99.96 is not 100: what failed must not be rounded away, nor what succeeded.
	if failed > 0 && share > 99.9 {
		return "> 99.9 %"
	}
	if succeeded > 0 && share < 0.1 {
		return "< 0.1 %"
	}
	return strings.TrimSuffix(strconv.FormatFloat(share, 'f', 1, 64), ".0") + " %"
}

func seconds(s *float64, known *time.Time) string {
	if s == nil {
		return "unknown"
	}
	if known == nil {
		return "nothing pending"
	}
	d := time.Duration(*s * float64(time.Second))
	if d < time.Minute {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	minutes, left := int(d.Minutes()), int(d.Seconds())%60
	if minutes < 60 {
		return fmt.Sprintf("%d min %d s", minutes, left)
	}
	return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
}

// soft lets a dotted name break where its parts meet.
func soft(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)
	return template.HTML(strings.NewReplacer(".", ".<wbr>", "_", "_<wbr>").Replace(escaped)) // #nosec G203 -- escaped just above
}

func byteSize(n any) string {
	size, ok := n.(int)
	if p, isPtr := n.(*int); isPtr && p != nil {
		size, ok = *p, true
	}
	switch {
	case !ok:
		return "–"
	case size < 1024:
		return strconv.Itoa(size) + " B"
	case size < 1<<20:
		return strconv.FormatFloat(float64(size)/1024, 'f', 1, 64) + " KiB"
	}
	return strconv.FormatFloat(float64(size)/(1<<20), 'f', 1, 64) + " MiB"
}

// short keeps the ends of an id, which is what people compare.
func short(text string) string {
	prefix, rest, found := strings.Cut(text, "_")
	if !found || len(rest) <= 14 {
		return text
	}
	return prefix + "_" + rest[:4] + "…" + rest[len(rest)-6:]
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict takes pairs, not %d values", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}

// cursorLink is this page's address with another cursor; none leads to the first page.
func cursorLink(base string, query url.Values, cursor string) string {
	next := url.Values{}
	for name, values := range query {
		next[name] = values
	}
	next.Del("cursor")
	if cursor != "" {
		next.Set("cursor", cursor)
	}
	if len(next) == 0 {
		return base
	}
	return base + "?" + next.Encode()
}
