"""The published datasets: sources, sizes and checksums, licences and citations."""

from candidly.data.published.catalogue import Download, Entry, File

__all__ = ["REGISTRY"]

_PAPER = "https://github.com/mathefuchs/pll-with-conformal-candidate-cleaning"
_COMMIT = "0bc1124707aa902bfb4faad872b34abebea07d21"
_RAW = f"https://raw.githubusercontent.com/mathefuchs/pll-with-conformal-candidate-cleaning/{_COMMIT}"
_TORONTO = "https://www.cs.toronto.edu/~kriz"
_DIGITS = tuple("0123456789")
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)
_KRIZHEVSKY = "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, Toronto, 2009"
_CIFAR_LICENCE = "the publisher states no licence and asks to cite the technical report"
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_SVHN_FILES = (
    File("train_32x32.mat", 182_040_794, "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
    File("test_32x32.mat", 64_275_384, "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
)


def _realworld(
    name: str,
    shape: tuple[int, int],
    num_classes: int,
    size: int | None,
    digest: str,
    citation: str,
    bags: bool = False,
) -> Entry:
    file = File(f"{name}.mat", size, digest)
    return Entry(
        name=name,
        format="mat",
        page=f"{_PAPER}/tree/{_COMMIT}/data/realworld-datasets",
        licence="its source's licence file says MIT, its README academic use only",
        citation=citation,
        shape=shape,
        num_classes=num_classes,
        bags=bags,
        files=(file,),
        folders=("realworld",),
        downloads=(Download(f"{_RAW}/data/realworld-datasets/{name}.mat", size, digest),),
    )


def _idx_files(*digests: str | None, arrays: tuple[str, ...] = ()) -> tuple[File, ...]:
    others = [(f"{name}.gz", *arrays[k : k + 1]) for k, name in enumerate(_IDX)]
    return tuple(
        File(name, size, digest and f"sha256:{digest}", other)
        for name, size, digest, other in zip(_IDX, _IDX_SIZES, digests, others, strict=True)
    )


def _idx_downloads(base: str, *facts: tuple[int, str]) -> tuple[Download, ...]:
    return tuple(
        Download(f"{base}/{name}.gz", size, f"sha256:{digest}")
        for name, (size, digest) in zip(_IDX, facts, strict=True)
    )


_ENTRIES = (
    _realworld(
        "bird-song",
        (4998, 38),
        13,
        1_052_915,
        "sha256:2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743",
        "F. Briggs, X. Fern, R. Raich, Rank-Loss Support Instance Machines for MIML Instance Annotation, KDD 2012",
        bags=True,
    ),
    _realworld(
        "lost",
        (1122, 108),
        16,
        936_096,
        "sha256:42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f",
        "T. Cour, B. Sapp, B. Taskar, Learning from Partial Labels, JMLR 12, 2011",
        bags=True,
    ),
    _realworld(
        "mir-flickr",
        (2780, 1536),
        14,
        None,
        "git-blob:4e35e2ac7d16120722a2f2ec6e7baa99138ddbd0",
        "M. Huiskes, M. Lew, The MIR Flickr Retrieval Evaluation, MIR 2008",
    ),
    _realworld(
        "msrc-v2",
        (1758, 48),
        23,
        381_088,
        "sha256:948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393",
        "L. Liu, T. Dietterich, A Conditional Multinomial Mixture Model for Superset Label Learning, NIPS 2012",
        bags=True,
    ),
    _realworld(
        "soccer",
        (17_472, 279),
        171,
        None,
        "git-blob:3372e7350e06eba374c715e07fbd18e2555e00ec",
        "Z. Zeng et al., Learning by Associating Ambiguously Labeled Images, CVPR 2013",
    ),
    _realworld(
        "yahoo-news",
        (22_991, 163),
        219,
        None,
        "git-blob:c9c3c35a6562ece4dffca8e7997c4c9cdcd12354",
        "M. Guillaumin, J. Verbeek, C. Schmid, Multiple Instance Metric Learning from Automatically Labeled Bags of "
        "Faces, ECCV 2010",
    ),
    Entry(
        name="mnist",
        format="idx",
        page="https://github.com/cvdfoundation/mnist",  # whose files are on storage.googleapis.com
        licence="copyright Y. LeCun and C. Cortes, generally given as CC BY-SA 3.0",
        citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document Recognition, "
        "Proceedings of the IEEE 86, 1998",
        shape=(70_000, 28, 28),
        num_classes=10,
        classes=_DIGITS,
        folders=("mnist",),
        num_train=60_000,
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        downloads=_idx_downloads(
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
    Entry(
        name="fmnist",
        format="idx",
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
        "Learning Algorithms, arXiv:1708.07747, 2017",
        shape=(70_000, 28, 28),
        num_classes=10,
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        folders=("fashion-mnist", "fmnist"),
        num_train=60_000,
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        downloads=_idx_downloads(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
    ),
    Entry(
        name="kmnist",
        format="idx",
        page="http://codh.rois.ac.jp/kmnist",
        licence="CC BY-SA 4.0; name the KMNIST dataset (created by CODH) and its source, doi:10.20676/00000341",
        citation="T. Clanuwat et al., Deep Learning for Classical Japanese Literature, arXiv:1812.01718, 2018",
        shape=(70_000, 28, 28),
        num_classes=10,
        classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
        folders=("kmnist",),
        num_train=60_000,
        files=_idx_files(
            *(None,) * 4,
            arrays=(
                "kmnist-train-imgs.npz",
                "kmnist-train-labels.npz",
                "kmnist-test-imgs.npz",
                "kmnist-test-labels.npz",
            ),
        ),
        downloads=_idx_downloads(
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
            (18_165_135, "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4"),
            (29_497, "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17"),
            (3_041_136, "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5"),
            (5_120, "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c"),
        ),
    ),
    Entry(
        name="svhn",
        format="svhn",
        page=_SVHN,
        licence="the publisher allows non-commercial use only",
        citation="Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Ng, Reading Digits in Natural Images with "
        "Unsupervised Feature Learning, NIPS workshop on deep learning, 2011",
        shape=(99_289, 3, 32, 32),
        num_classes=10,
        classes=_DIGITS,
        num_train=73_257,
        files=_SVHN_FILES,
        folders=("svhn",),
        downloads=tuple(Download(f"{_SVHN}/{file.name}", file.size, file.digest) for file in _SVHN_FILES),
    ),
    Entry(
        name="cifar10",
        format="cifar",
        page=f"{_TORONTO}/cifar.html",
        licence=_CIFAR_LICENCE,
        citation=_KRIZHEVSKY,
        shape=(60_000, 3, 32, 32),
        num_classes=10,
        classes=_CIFAR10,
        num_train=50_000,
        files=tuple(
            File(f"{name}.bin", 30_730_000, f"sha256:{digest}")
            for name, digest in (
                ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            )
        ),
        folders=("cifar10", "cifar-10-batches-bin"),
        downloads=(
            Download(
                f"{_TORONTO}/cifar-10-binary.tar.gz",
                170_052_171,
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                tuple(
                    f"cifar-10-batches-bin/{name}.bin"
                    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
                ),
            ),
        ),
        pickled=("data_batch_1", "cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz"),
    ),
    Entry(
        name="cifar100",
        format="cifar",
        page=f"{_TORONTO}/cifar.html",
        licence=_CIFAR_LICENCE,
        citation=_KRIZHEVSKY,
        shape=(60_000, 3, 32, 32),
        num_classes=100,
        classes=tuple(_CIFAR100.split()),
        num_train=50_000,
        files=(
            File("train.bin", 153_700_000, "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            File("test.bin", 30_740_000, "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        folders=("cifar100", "cifar-100-binary"),
        downloads=(
            Download(
                f"{_TORONTO}/cifar-100-binary.tar.gz",
                168_513_733,
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
            ),
        ),
        pickled=("train", "cifar-100-python/train", "cifar-100-python.tar.gz"),
    ),
    Entry(
        name="cifar10n",
        format="cifar10n",
        page="http://www.noisylabels.com",
        licence="CC BY-NC 4.0: attribution, no commercial use",
        citation="J. Wei, Z. Zhu, H. Cheng, T. Liu, G. Niu, Y. Liu, Learning with Noisy Labels Revisited: A Study "
        "Using Real-World Human Annotations, ICLR 2022",
        shape=(60_000, 3, 32, 32),
        num_classes=10,
        classes=_CIFAR10,
        num_train=50_000,
        files=(File("cifar10n.npz"),),
        folders=("cifar10n",),
        manual="The publisher, http://www.noisylabels.com, offers pickles only, so there is nothing to download that "
        "is read here. Make cifar10n.npz from them: arrays annotator_labels (50000, 3) and clean_label (50000,), both "
        "of type uint8, for the training images of CIFAR-10 in the order of its binary files",
        pickled=("CIFAR-10_human.pt", "CIFAR-10_human.npy", "CIFAR-10_human_ordered.npy"),
    ),
    Entry(
        name="digits",
        format="digits",
        page="https://archive.ics.uci.edu/dataset/80",
        licence="CC BY 4.0",
        citation="E. Alpaydin, C. Kaynak, Cascading Classifiers, Kybernetika 34, 1998",
        shape=(1797, 64),
        num_classes=10,
        classes=_DIGITS,
    ),
)

REGISTRY: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
