//! Numbers as HCL writes them, in decimal digits.

use crate::Number;

/// Longest hexadecimal or octal number that is converted.
const MAX_DIGITS: usize = 256;

/// Reads a number as HCL writes it: decimal, `0x` hexadecimal, or octal with a
/// leading zero; the result is decimal, digit for digit.
pub(super) fn number(text: &str) -> Option<Number> {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let decimal = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))
    {
        from_base(hex, 16)?
    } else if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(is_digit) {
        from_base(digits, 8)?
    } else {
        from_decimal(digits)?
    };
    format!("{sign}{decimal}").parse().ok()
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// Completes what JSON would not take: no digit before or after the point, leading zeros.
fn from_decimal(text: &str) -> Option<String> {
    let (mantissa, exponent) =
        text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut decimal = if whole.is_empty() { "0".to_owned() } else { whole.to_owned() };
    if !fraction.is_empty() {
        decimal.push('.');
        decimal.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        decimal.push('e');
        decimal.push_str(exponent);
    }
    Some(decimal)
}

fn from_base(text: &str, base: u32) -> Option<String> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    // Decimal digits, the lowest first.
    let mut decimal = vec![0_u32];
    for character in text.chars() {
        let mut carry = character.to_digit(base)?;
        for digit in &mut decimal {
            carry += *digit * base;
            *digit = carry % 10;
            carry /= 10;
        }
        while carry > 0 {
            decimal.push(carry % 10);
            carry /= 10;
        }
    }
    decimal.iter().rev().map(|digit| char::from_digit(*digit, 10)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_becomes_its_decimal_text() {
        for (text, decimal) in [
            ("0", "0"),
            ("-12", "-12"),
            ("0x1F", "31"),
            ("-0xff", "-255"),
            ("0755", "493"),
            ("0xFFFFFFFFFFFFFFFFFFFF", "1208925819614629174706175"),
            ("1.50", "1.50"),
            (".5", "0.5"),
            ("1.", "1"),
            ("1e+5", "1e+5"),
            ("12345678901234567890123.25", "12345678901234567890123.25"),
        ] {
            assert_eq!(number(text).unwrap().as_str(), decimal, "{text}");
        }
        for text in ["", "-", ".", "0x", "0xg", "08", "1.2.3", "1e", "12ab", "1e5e5"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
