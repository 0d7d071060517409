<?php

declare(strict_types=1);

namespace ApiPay;

/** A webhook endpoint's signing secret. It prints as [redacted]; reveal() gives the text. */
final class Secret implements \JsonSerializable
{
    private readonly Hidden $text;

    public function __construct(#[\SensitiveParameter] string $text)
    {
        $this->text = new Hidden($text);
    }

    /** The text, "whsec_...". */
    public function reveal(): string
    {
        return (string) $this->text->value();
    }

    public function __toString(): string
    {
        return '[redacted]';
    }

    /** An endpoint's JSON is what came from the API, the secret included. */
    public function jsonSerialize(): string
    {
        return $this->reveal();
    }
}
