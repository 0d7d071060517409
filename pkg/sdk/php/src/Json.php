<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * Reads and writes JSON without losing digits.
 *
 * @internal
 */
final class Json
{
    /** Reads an object; objects stay objects, so that {} and [] remain apart. */
    public static function object(#[\SensitiveParameter] string $text): \stdClass
    {
        try {
            $value = json_decode($text, false, 512, JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING);
        } catch (\JsonException) {
            throw new InvalidJson('it is not JSON');
        }
        if (!$value instanceof \stdClass) {
            throw new InvalidJson('it is not a JSON object');
        }
        return $value;
    }

    /** Writes a call's parameters. */
    public static function encode(#[\SensitiveParameter] array $params): string
    {
        if (isset($params['metadata']) && is_array($params['metadata'])) {
            $params['metadata'] = (object) $params['metadata']; // an empty array, or one with numeric keys, is an object too
        }
        try {
            return json_encode((object) $params,
                JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION);
        } catch (\JsonException) {
            throw ApiPayException::refusal('the parameters cannot be written as JSON');
        }
    }
}
